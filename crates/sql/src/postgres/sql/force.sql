-- $1 name, $2 channel
WITH freed AS (
  UPDATE {locks} AS l SET expires_at = 0
  WHERE l.name = $1 AND l.expires_at > {now}
  RETURNING l.waited
)
SELECT CASE WHEN waited THEN pg_notify($2, encode($1, 'hex'))::text END AS told FROM freed
