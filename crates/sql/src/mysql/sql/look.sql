-- $1 name, $2 claim
SELECT {now} AS now, l.claim_id, l.expires_at, l.holder,
  EXISTS (SELECT 1 FROM {voids} AS v WHERE v.claim_id = $2) + 0 AS voided,
  (CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF')) + 0 AS read_only
FROM (SELECT 1 AS one) AS n LEFT JOIN {locks} AS l ON l.name = $1
