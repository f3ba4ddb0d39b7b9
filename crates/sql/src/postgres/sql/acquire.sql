-- $1 name, $2 claim, $3 smallest token, $4 server ttl, $5 holder, $6 note, $7 the claim as a number, $8 lock wait,
-- $9 lock delay
WITH n AS MATERIALIZED (
  SELECT {now} AS at, set_config('lock_timeout', $8, true),
    -- whoever voids this id takes the same lock alone: it waits for us, or we see that it is at it
    pg_try_advisory_xact_lock_shared($7) AS alive
), taken AS (
  INSERT INTO {locks} AS l (name, claim_id, token, expires_at, ttl, delay, waited, holder, note, acquired_at)
  SELECT $1, $2, greatest($3, n.at, coalesce((SELECT f.token + 1 FROM {locks} AS f WHERE f.name = ''::bytea), 0)){reserve},
    n.at + $4, $4, $9, false, $5, $6, n.at
  FROM n
  WHERE n.alive
    AND NOT EXISTS (SELECT FROM {voids} AS v WHERE v.claim_id = $2)
    -- a lock that is held is left alone, so that contention writes nothing
    AND NOT EXISTS (SELECT FROM {locks} AS h WHERE h.name = $1 AND h.claim_id <> $2 AND h.expires_at > n.at)
  ON CONFLICT (name) DO UPDATE SET
    token       = CASE WHEN l.claim_id = excluded.claim_id THEN l.token ELSE greatest(l.token + 1{reserve}, excluded.token) END,
    acquired_at = CASE WHEN l.claim_id = excluded.claim_id THEN l.acquired_at ELSE excluded.acquired_at END,
    -- never back: this statement may be a late copy, after one that gave more
    expires_at  = CASE WHEN l.claim_id = excluded.claim_id THEN greatest(l.expires_at, excluded.expires_at)
                       ELSE excluded.expires_at END,
    waited      = l.claim_id = excluded.claim_id AND l.waited,
    claim_id    = excluded.claim_id,
    ttl         = excluded.ttl,
    delay       = excluded.delay,
    holder      = excluded.holder,
    note        = excluded.note
  WHERE CASE
    -- ours: re-armed while it lives; freed or expired, the id is dead
    WHEN l.claim_id = excluded.claim_id THEN l.expires_at > {now}
    -- another's: taken when freed or expired; ours that was taken from us stays dead
    ELSE l.expires_at <= {now} AND l.claim_id <> excluded.claim_id || '\x00'::bytea
  END
  RETURNING l.token
){then}
