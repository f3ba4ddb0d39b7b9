-- ?1 name, ?2 seen claim, ?3 seen frame, ?4 seen expiry, ?5 new expiry, ?6 our frame
UPDATE fencelock_locks SET expires_at = ?5, boot_id = ?6
WHERE name = ?1 AND claim_id = ?2 AND boot_id = ?3 AND expires_at = ?4
RETURNING 1
