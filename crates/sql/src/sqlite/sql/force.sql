-- ?1 name, ?2 now, ?3 frame
UPDATE fencelock_locks SET expires_at = 0
WHERE name = ?1 AND expires_at <> 0 AND (boot_id <> ?3 OR expires_at > ?2)
RETURNING 1
