-- ?1 the last expiry, ?2 frame, ?3 the last grant, of locks whose row may go; ?4 the name after which to begin,
-- ?5 the last one
DELETE FROM fencelock_locks
WHERE name > ?4 AND name <= ?5 AND acquired_at <= ?3 AND (expires_at = 0 OR (boot_id = ?2 AND expires_at <= ?1))
  AND token <= (SELECT token FROM fencelock_locks WHERE name = x'')
RETURNING 1
