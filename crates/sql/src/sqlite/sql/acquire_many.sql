-- ?1 those who ask, as JSON: [[name, claim, server ttl, lock delay, holder, note, now], …], text in hexadecimal;
-- ?2 smallest token, ?3 frame, ?4 Unix time. Each is as in acquire.sql.
INSERT INTO fencelock_locks AS l (name, claim_id, token, expires_at, ttl, delay, boot_id, holder, note, acquired_at)
SELECT unhex(value ->> 0), unhex(value ->> 1),
  max(?2, coalesce((SELECT token + 1 FROM fencelock_locks WHERE name = x''), 0)),
  (value ->> 6) + (value ->> 2), value ->> 2, value ->> 3, ?3,
  CAST(unhex(value ->> 4) AS TEXT), CAST(unhex(value ->> 5) AS TEXT), ?4
FROM json_each(?1)
WHERE NOT EXISTS (SELECT 1 FROM fencelock_voids WHERE claim_id = unhex(value ->> 1))
ON CONFLICT (name) DO UPDATE SET
  token       = CASE WHEN l.claim_id = excluded.claim_id THEN l.token ELSE max(l.token + 1, excluded.token) END,
  acquired_at = CASE WHEN l.claim_id = excluded.claim_id THEN l.acquired_at ELSE excluded.acquired_at END,
  claim_id    = excluded.claim_id,
  expires_at  = CASE WHEN l.claim_id = excluded.claim_id AND l.boot_id = ?3 THEN max(l.expires_at, excluded.expires_at)
                     ELSE excluded.expires_at END,
  ttl         = excluded.ttl,
  delay       = excluded.delay,
  boot_id     = excluded.boot_id,
  holder      = excluded.holder,
  note        = excluded.note
-- what expires by then did so by its own now, which is its expiry without its ttl
WHERE CASE
  WHEN l.claim_id = excluded.claim_id
    THEN l.expires_at <> 0 AND (l.boot_id <> ?3 OR l.expires_at > excluded.expires_at - excluded.ttl)
  ELSE (l.expires_at = 0 OR (l.boot_id = ?3 AND l.expires_at <= excluded.expires_at - excluded.ttl))
    AND l.claim_id <> CAST(excluded.claim_id || x'00' AS BLOB)
END
RETURNING claim_id, token
