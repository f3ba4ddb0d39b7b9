-- ?1 name, ?2 claim, ?3 smallest token, ?4 now, ?5 frame, ?6 holder, ?7 Unix time
INSERT INTO fencelock_locks AS l (name, claim_id, token, expires_at, ttl, delay, boot_id, holder, note, acquired_at)
SELECT ?1, ?2, max(?3, coalesce((SELECT token + 1 FROM fencelock_locks WHERE name = x''), 0)), 0, 0, 0, ?5, ?6, NULL, ?7
WHERE true
ON CONFLICT (name) DO UPDATE SET
  claim_id = excluded.claim_id, token = max(l.token + 1, excluded.token), expires_at = 0, ttl = 0, delay = 0,
  boot_id = excluded.boot_id, holder = excluded.holder, note = NULL, acquired_at = excluded.acquired_at
-- an expiry on a clock that cannot be read here counts as unexpired
WHERE l.expires_at = 0 OR (l.boot_id = ?5 AND l.expires_at <= ?4)
RETURNING token
