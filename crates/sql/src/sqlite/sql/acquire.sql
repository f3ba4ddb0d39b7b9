-- ?1 name, ?2 claim, ?3 smallest token, ?4 now, ?5 server ttl, ?6 frame, ?7 holder, ?8 note, ?9 Unix time,
-- ?10 lock delay; where tokens are reserved, ?11 how many besides the holder's: the row has the last of them
INSERT INTO fencelock_locks AS l (name, claim_id, token, expires_at, ttl, delay, boot_id, holder, note, acquired_at)
SELECT ?1, ?2, max(?3, coalesce((SELECT token + 1 FROM fencelock_locks WHERE name = x''), 0)){reserve}, ?4 + ?5, ?5, ?10, ?6, ?7, ?8, ?9
WHERE NOT EXISTS (SELECT 1 FROM fencelock_voids WHERE claim_id = ?2)
ON CONFLICT (name) DO UPDATE SET
  token       = CASE WHEN l.claim_id = ?2 THEN l.token ELSE max(l.token + 1{reserve}, excluded.token) END,
  acquired_at = CASE WHEN l.claim_id = ?2 THEN l.acquired_at ELSE excluded.acquired_at END,
  claim_id    = excluded.claim_id,
  -- never back: this statement may be a late copy, after one that gave more
  expires_at  = CASE WHEN l.claim_id = ?2 AND l.boot_id = ?6 THEN max(l.expires_at, excluded.expires_at)
                     ELSE excluded.expires_at END,
  ttl         = excluded.ttl,
  delay       = excluded.delay,
  boot_id     = excluded.boot_id,
  holder      = excluded.holder,
  note        = excluded.note
WHERE CASE
  -- ours: re-armed while it lives; freed or expired, the id is dead
  WHEN l.claim_id = ?2 THEN l.expires_at <> 0 AND (l.boot_id <> ?6 OR l.expires_at > ?4)
  -- another's: taken when freed, or expired on a clock that we can read; ours that was taken from us stays dead
  ELSE (l.expires_at = 0 OR (l.boot_id = ?6 AND l.expires_at <= ?4)) AND l.claim_id <> CAST(?2 || x'00' AS BLOB)
END
RETURNING token
