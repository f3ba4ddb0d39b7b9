-- ?1 the largest token that goes, ?2 frame
INSERT INTO fencelock_locks AS l (name, claim_id, token, expires_at, ttl, delay, boot_id, holder, note, acquired_at)
VALUES (x'', x'', ?1, 0, 0, 0, ?2, '', NULL, 0)
ON CONFLICT (name) DO UPDATE SET token = max(l.token, excluded.token)
RETURNING token
