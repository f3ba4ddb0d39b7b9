-- ?1 the last expiry, ?2 frame, ?3 the last grant, of locks whose row may go; ?4 the name after which to go on
SELECT max(name) AS upto,
  max(CASE WHEN acquired_at <= ?3 AND (expires_at = 0 OR (boot_id = ?2 AND expires_at <= ?1)) THEN token END) AS newest
FROM (
  SELECT name, token, acquired_at, expires_at, boot_id FROM fencelock_locks WHERE name > ?4 ORDER BY name LIMIT 1000
)
