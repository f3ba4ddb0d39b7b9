-- $1 name, $2 claim, $3 smallest token, $4 server ttl, $5 holder, $6 note, $7 lock delay;
-- where tokens are reserved, $8 how many besides the holder's: the row has the last of them
-- The answer has the token if the lock was taken, and else 0 and that there is such a row.
-- Columns are assigned from the top, and each sees what was assigned before it.
UPDATE {locks} AS l SET
  l.token       = IF(l.claim_id = $2, LAST_INSERT_ID(l.token),
                     IF(l.expires_at <= {now}, LAST_INSERT_ID(GREATEST(l.token + 1, $3, {now}){reserve}), l.token)),
  l.acquired_at = IF(l.claim_id <> $2 AND l.expires_at <= {now}, {now}, l.acquired_at),
  l.ttl         = IF(l.claim_id = $2 OR l.expires_at <= {now}, $4, l.ttl),
  l.delay       = IF(l.claim_id = $2 OR l.expires_at <= {now}, $7, l.delay),
  l.holder      = IF(l.claim_id = $2 OR l.expires_at <= {now}, $5, l.holder),
  l.note        = IF(l.claim_id = $2 OR l.expires_at <= {now}, $6, l.note),
  l.claim_id    = IF(l.claim_id = $2 OR l.expires_at <= {now}, $2, l.claim_id),
  -- never back: this statement may be a late copy, after one that gave more
  l.expires_at  = IF(l.claim_id = $2, GREATEST(l.expires_at, {now} + $4), l.expires_at)
WHERE l.name = $1
  -- freed or expired, the id is dead; and when it was taken from us
  AND NOT (l.claim_id = $2 AND l.expires_at <= {now})
  AND l.claim_id <> CONCAT($2, X'00')
  -- whoever may write all the same, as an administrator may, must not lock at a server that was demoted
  AND CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF')
  AND NOT EXISTS (SELECT 1 FROM {voids} AS v WHERE v.claim_id = $2)
