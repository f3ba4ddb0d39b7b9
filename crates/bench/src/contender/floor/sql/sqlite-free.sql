-- ?1 name, ?2 claim
UPDATE fencelock_locks SET expires_at = 0
WHERE name = ?1 AND claim_id = ?2 AND expires_at <> 0
RETURNING 1
