-- ?1 the last expiry, ?2 frame, ?3 the last grant, of locks whose row may go
DELETE FROM fencelock_locks
WHERE name <> x'' AND acquired_at <= ?3 AND (expires_at = 0 OR (boot_id = ?2 AND expires_at <= ?1))
  AND token <= (SELECT token FROM fencelock_locks WHERE name = x'')
RETURNING 1
