-- $1 name, $2 claim, $3 channel, $4 whether others were told of the claim, $5 how often the lock was handed on,
-- and those who wait: $6 claims, $7 the claims as numbers, $8 what their sessions hold, $9 rounds, $10 server ttls,
-- $11 lock delays, $12 reserves, $13 smallest tokens, $14 holders, $15 notes, after a byte if there is one;
-- $16 the channel that only we know, $17 the least token of the hold that ends, $18 the largest
WITH n AS MATERIALIZED (
  SELECT {now} AS at
), next AS MATERIALIZED (
  SELECT w.*
  FROM unnest($6::bytea[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
      $13::bigint[], $14::bytea[], $15::bytea[])
    WITH ORDINALITY AS w(id, number, listener, round, ttl, delay, reserve, least, holder, note, place)
  -- while the session lives that would hear of it, this lock is its own
  WHERE NOT pg_try_advisory_xact_lock_shared(w.listener)
    -- as in an acquire: whoever voids this id waits for us, or we see that it is at it
    AND pg_try_advisory_xact_lock_shared(w.number)
    AND NOT EXISTS (SELECT FROM {voids} AS v WHERE v.claim_id = w.id)
  ORDER BY w.place
  LIMIT 1
), freed AS (
  UPDATE {locks} AS l SET
    claim_id    = coalesce(next.id, l.claim_id),
    token       = CASE WHEN next.id IS NULL THEN l.token ELSE greatest(l.token + 1, next.least, n.at) + next.reserve END,
    expires_at  = coalesce(n.at + next.ttl, 0),
    ttl         = coalesce(next.ttl, l.ttl),
    delay       = coalesce(next.delay, l.delay),
    -- there may be others, of whom only the row knows
    waited      = l.waited OR next.id IS NOT NULL,
    holder      = CASE WHEN next.id IS NULL THEN l.holder ELSE convert_from(next.holder, 'UTF8') END,
    note        = CASE WHEN next.id IS NULL THEN l.note
                       WHEN next.note <> ''::bytea THEN convert_from(substr(next.note, 2), 'UTF8') END,
    acquired_at = CASE WHEN next.id IS NULL THEN l.acquired_at ELSE n.at END
  FROM n LEFT JOIN next ON true
  WHERE l.name = $1 AND l.claim_id = $2 AND l.expires_at <> 0 AND l.token BETWEEN $17 AND $18
  RETURNING l.token, l.ttl, l.waited, next.id, next.listener, next.round, next.place
)
SELECT freed.token IS NOT NULL AS done, freed.place,
  CASE
    WHEN freed.id IS NOT NULL THEN pg_notify($16, concat_ws(' ', 'g', encode($1, 'hex'), encode($2, 'hex'),
      encode(freed.id, 'hex'), freed.listener, freed.round, $5::bigint + 1, freed.token, freed.ttl))::text
    WHEN freed.waited THEN pg_notify($3, encode($1, 'hex'))::text
  END AS told,
  -- whoever gave it back waits no more, and the next holder knows by the token that it has heard of everything before
  CASE WHEN freed.id IS NULL AND ($4 OR freed.waited)
    THEN pg_notify($16, concat_ws(' ', 'x', encode($1, 'hex'), encode($2, 'hex'), coalesce(freed.token, 0)))::text
  END AS gone
FROM n LEFT JOIN freed ON true
