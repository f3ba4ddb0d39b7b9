-- $1 the name after which to go on, $2 for how long a lock must have been free
WITH few AS MATERIALIZED (
  SELECT l.name, l.token, l.acquired_at, l.expires_at FROM {locks} AS l WHERE l.name > $1 ORDER BY l.name LIMIT 5000
)
SELECT (SELECT name FROM few ORDER BY name DESC LIMIT 1) AS upto,
  (SELECT max(token) FROM few WHERE acquired_at <= {now} - $2 AND expires_at <= {now} - $2) AS newest
