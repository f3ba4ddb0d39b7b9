-- $1 name, $2 channel, or none where no notice can be kept, $3 lock wait: one that came late could free a later hold;
-- $4 the least token, $5 the largest, $6 the channel that only we know, if there is one
WITH n AS MATERIALIZED (
  SELECT set_config('lock_timeout', $3, true)
), freed AS (
  UPDATE {locks} AS l SET
    -- with a lock delay it stays closed, under an id that no claim has
    claim_id   = CASE WHEN l.delay > 0 THEN l.claim_id || '\x00'::bytea ELSE l.claim_id END,
    expires_at = CASE WHEN l.delay > 0 THEN least(l.expires_at, {now} + l.delay) ELSE 0 END
  FROM n
  WHERE l.name = $1 AND l.expires_at > {now} AND octet_length(l.claim_id) = 16
    AND l.token BETWEEN $4 AND $5
  RETURNING l.waited, l.token, substr(l.claim_id, 1, 16) AS claim_id
)
-- told in either case: who waits looks again, and sees for how long it is closed
SELECT CASE WHEN waited AND $2::text IS NOT NULL THEN pg_notify($2::text, encode($1, 'hex'))::text END AS told,
  -- whose hold was ended may have waited for it, and is not to be handed the lock again while it believes in that hold
  CASE WHEN $6::text IS NOT NULL THEN pg_notify($6::text, concat_ws(' ', 'x', encode($1, 'hex'), encode(claim_id, 'hex'), token))::text END AS gone
FROM freed
