-- $1 name, $2 claim, $3 smallest token, $4 holder
WITH n AS MATERIALIZED (
  SELECT {now} AS at
)
INSERT INTO {locks} AS l (name, claim_id, token, expires_at, ttl, delay, waited, holder, note, acquired_at)
SELECT $1, $2, greatest($3, n.at, coalesce((SELECT f.token + 1 FROM {locks} AS f WHERE f.name = ''::bytea), 0)),
  0, 0, 0, false, $4, NULL, n.at
FROM n
WHERE NOT EXISTS (SELECT FROM {locks} AS h WHERE h.name = $1 AND h.expires_at > n.at)
ON CONFLICT (name) DO UPDATE SET
  claim_id = excluded.claim_id, token = greatest(l.token + 1, excluded.token), expires_at = 0, ttl = 0, delay = 0,
  waited = false, holder = excluded.holder, note = NULL, acquired_at = excluded.acquired_at
-- a lease that was granted while we waited for the row is respected
WHERE l.expires_at <= {now}
RETURNING l.token
