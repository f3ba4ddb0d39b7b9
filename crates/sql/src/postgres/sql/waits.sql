-- the rest of an acquire that will wait: a release is to tell of itself
, flagged AS (
  UPDATE {locks} AS l SET waited = true
  FROM n
  WHERE n.alive AND l.name = $1 AND l.claim_id <> $2 AND l.expires_at > n.at AND NOT l.waited
    AND NOT EXISTS (SELECT FROM taken)
  RETURNING 1 AS done
), seen AS MATERIALIZED (
  SELECT taken.token AS taken, n.at AS now, l.claim_id, l.expires_at, l.holder, l.token,
    NOT n.alive OR EXISTS (SELECT FROM {voids} AS v WHERE v.claim_id = $2) AS voided,
    -- it was seen held, but freed before it could be flagged
    taken.token IS NULL AND NOT l.waited AND flagged.done IS NULL AS unheard
  FROM n LEFT JOIN taken ON true LEFT JOIN flagged ON true LEFT JOIN {locks} AS l ON l.name = $1
)
SELECT seen.*{told}
FROM seen
