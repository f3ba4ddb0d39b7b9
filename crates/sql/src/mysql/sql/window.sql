-- $1 the name after which to go on, $2 for how long a lock must have been free
SELECT MAX(few.name) AS upto,
  MAX(CASE WHEN few.acquired_at <= {now} - $2 AND few.expires_at <= {now} - $2 THEN few.token END) AS newest
FROM (
  SELECT name, token, acquired_at, expires_at FROM {locks} WHERE name > $1 ORDER BY name LIMIT 5000
) AS few
