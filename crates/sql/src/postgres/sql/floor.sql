-- $1 the largest token that goes
INSERT INTO {locks} AS l (name, claim_id, token, expires_at, ttl, delay, waited, holder, note, acquired_at)
VALUES (''::bytea, ''::bytea, $1, 0, 0, 0, false, '', NULL, 0)
ON CONFLICT (name) DO UPDATE SET token = greatest(l.token, excluded.token)
