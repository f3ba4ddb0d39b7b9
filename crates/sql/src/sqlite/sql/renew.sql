-- ?1 wishes as JSON: [[name, claim, now, server ttl], …], the first two in hexadecimal; ?2 frame
UPDATE fencelock_locks AS l
-- never back: a renewal may come after one that gave more
SET expires_at = CASE WHEN l.boot_id = ?2 THEN max(l.expires_at, w.now + w.ttl) ELSE w.now + w.ttl END, ttl = w.ttl, boot_id = ?2
FROM (
  SELECT unhex(value ->> 0) AS name, unhex(value ->> 1) AS claim_id, value ->> 2 AS now, value ->> 3 AS ttl
  FROM json_each(?1)
) AS w
WHERE l.name = w.name AND l.claim_id = w.claim_id AND l.expires_at <> 0
  AND (l.boot_id <> ?2 OR l.expires_at > w.now)
RETURNING claim_id
