-- ?1 prefix
SELECT name, claim_id, token, expires_at, ttl, boot_id, holder, note, acquired_at
FROM fencelock_locks
WHERE name >= ?1 AND substr(name, 1, length(?1)) = ?1 AND expires_at <> 0 AND length(claim_id) = 16
ORDER BY name
