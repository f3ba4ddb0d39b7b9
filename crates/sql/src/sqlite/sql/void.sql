-- ?1 claim, ?2 expiry, ?3 frame
INSERT INTO fencelock_voids (claim_id, expires_at, boot_id) VALUES (?1, ?2, ?3)
ON CONFLICT (claim_id) DO UPDATE SET expires_at = excluded.expires_at, boot_id = excluded.boot_id
