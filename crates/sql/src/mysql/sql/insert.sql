-- $1 name, $2 claim, $3 smallest token, $4 server ttl, $5 holder, $6 note, $7 lock delay, $8 as in acquire.sql
INSERT INTO {locks} (name, claim_id, token, expires_at, ttl, delay, holder, note, acquired_at)
SELECT $1, $2, LAST_INSERT_ID(GREATEST($3, {now}, COALESCE((SELECT f.token + 1 FROM {locks} AS f WHERE f.name = ''), 0)){reserve}),
  {now} + $4, $4, $7, $5, $6, {now}
FROM (SELECT 1 AS one) AS n
WHERE CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF')
  AND NOT EXISTS (SELECT 1 FROM {voids} AS v WHERE v.claim_id = $2)
