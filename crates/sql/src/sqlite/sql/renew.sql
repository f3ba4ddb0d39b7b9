-- ?1 name, ?2 claim, ?3 now, ?4 server ttl, ?5 frame
UPDATE fencelock_locks SET expires_at = ?3 + ?4, ttl = ?4, boot_id = ?5
WHERE name = ?1 AND claim_id = ?2 AND expires_at <> 0 AND (boot_id <> ?5 OR expires_at > ?3)
RETURNING 1
