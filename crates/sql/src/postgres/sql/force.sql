-- $1 name, $2 channel, $3 lock wait: one that came late could free a later hold;
-- $4 the least token, $5 the largest
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
  RETURNING l.waited
)
-- told in either case: who waits looks again, and sees for how long it is closed
SELECT CASE WHEN waited THEN pg_notify($2, encode($1, 'hex'))::text END AS told FROM freed
