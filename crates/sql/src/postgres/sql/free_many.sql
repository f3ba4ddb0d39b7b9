-- holds: $1 names, $2 claims, $3 least tokens, $4 largest; $5 channel, $6 the channel that only we know, if there is one,
-- $7 lock wait. Each is as in free.sql.
WITH n AS MATERIALIZED (
  SELECT set_config('lock_timeout', $7, true) AS wait
), freed AS (
  UPDATE {locks} AS l SET expires_at = 0
  FROM n CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[]) AS w(name, id, least, largest)
  WHERE l.name = w.name AND l.claim_id = w.id AND l.expires_at <> 0 AND l.token BETWEEN w.least AND w.largest
    AND n.wait IS NOT NULL
  RETURNING l.name, l.claim_id, l.waited, l.token
)
SELECT claim_id,
  CASE WHEN waited THEN pg_notify($5::text, encode(name, 'hex'))::text END AS told,
  CASE WHEN waited AND $6::text IS NOT NULL
    THEN pg_notify($6::text, concat_ws(' ', 'x', encode(name, 'hex'), encode(claim_id, 'hex'), token))::text END AS gone
FROM freed
