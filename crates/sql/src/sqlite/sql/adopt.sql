-- ?1 frame, ?2 Unix time in a day
UPDATE fencelock_voids SET boot_id = '', expires_at = ?2 WHERE boot_id NOT IN ('', ?1)
