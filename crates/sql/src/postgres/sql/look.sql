-- $1 name, $2 claim
WITH n AS MATERIALIZED (
  SELECT {now} AS at
)
SELECT NULL::bigint AS taken, n.at AS now, l.claim_id, l.expires_at, l.holder,
  EXISTS (SELECT FROM {voids} AS v WHERE v.claim_id = $2) AS voided,
  false AS unheard
FROM n LEFT JOIN {locks} AS l ON l.name = $1
