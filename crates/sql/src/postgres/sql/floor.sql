-- $1 for how long a lock must have been free
INSERT INTO {locks} AS l (name, claim_id, token, expires_at, ttl, delay, waited, holder, note, acquired_at)
SELECT ''::bytea, ''::bytea, max(d.token), 0, 0, 0, false, '', NULL, 0
FROM {locks} AS d
WHERE d.name <> ''::bytea AND d.acquired_at <= {now} - $1 AND d.expires_at <= {now} - $1
HAVING max(d.token) IS NOT NULL
ON CONFLICT (name) DO UPDATE SET token = greatest(l.token, excluded.token)
