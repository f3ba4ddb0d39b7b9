-- ?1 the last expiry, ?2 frame, ?3 the last grant, of locks whose row may go
INSERT INTO fencelock_locks AS l (name, claim_id, token, expires_at, ttl, delay, boot_id, holder, note, acquired_at)
SELECT x'', x'', max(d.token), 0, 0, 0, ?2, '', NULL, 0
FROM fencelock_locks AS d
WHERE d.name <> x'' AND d.acquired_at <= ?3 AND (d.expires_at = 0 OR (d.boot_id = ?2 AND d.expires_at <= ?1))
HAVING max(d.token) IS NOT NULL
ON CONFLICT (name) DO UPDATE SET token = max(l.token, excluded.token)
RETURNING token
