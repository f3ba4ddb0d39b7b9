-- ?1 name, ?2 claim
SELECT EXISTS (SELECT 1 FROM fencelock_voids WHERE claim_id = ?2) AS voided,
  l.claim_id, l.token, l.expires_at, l.ttl, l.boot_id, l.holder, l.note, l.acquired_at
FROM (SELECT 1) LEFT JOIN fencelock_locks AS l ON l.name = ?1
