-- $1 name, $2 claim, $3 whether to be told of the release
WITH n AS MATERIALIZED (
  SELECT {now} AS at
), flagged AS (
  UPDATE {locks} AS l SET waited = true
  FROM n
  WHERE $3 AND l.name = $1 AND l.claim_id <> $2 AND l.expires_at > n.at AND NOT l.waited
  RETURNING 1 AS done
)
SELECT NULL::bigint AS taken, n.at AS now, l.claim_id, l.expires_at, l.holder,
  EXISTS (SELECT FROM {voids} AS v WHERE v.claim_id = $2) AS voided,
  -- it was seen held, but freed before it could be flagged
  $3 AND NOT l.waited AND flagged.done IS NULL AS unheard
FROM n LEFT JOIN flagged ON true LEFT JOIN {locks} AS l ON l.name = $1
