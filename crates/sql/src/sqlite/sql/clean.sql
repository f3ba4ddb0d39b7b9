-- ?1 now, ?2 frame, ?3 Unix time
DELETE FROM fencelock_voids
WHERE (boot_id = ?2 AND expires_at <= ?1) OR (boot_id = '' AND expires_at <= ?3)
