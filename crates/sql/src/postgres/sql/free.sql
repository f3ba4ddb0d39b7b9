-- $1 name, $2 claim, $3 channel, if anybody is to be told, $4 the channel that only we know, if there is one,
-- $5 the least token, $6 the largest: an id that has held may have been handed the lock again
WITH freed AS (
  UPDATE {locks} AS l SET expires_at = 0
  WHERE l.name = $1 AND l.claim_id = $2 AND l.expires_at <> 0 AND l.token BETWEEN $5 AND $6
  RETURNING l.waited, l.token
)
-- told only where somebody waits, since commits that tell go one after the other
SELECT CASE WHEN waited AND $3::text IS NOT NULL THEN pg_notify($3::text, encode($1, 'hex'))::text END AS told,
  CASE WHEN waited AND $4::text IS NOT NULL THEN pg_notify($4::text, concat_ws(' ', 'x', encode($1, 'hex'), encode($2, 'hex'), token))::text END AS gone
FROM freed
