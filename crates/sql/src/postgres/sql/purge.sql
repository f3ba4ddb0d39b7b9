-- $1 for how long a lock must have been free
DELETE FROM {locks} AS d
WHERE d.name <> ''::bytea AND d.acquired_at <= {now} - $1 AND d.expires_at <= {now} - $1
  AND d.token <= (SELECT f.token FROM {locks} AS f WHERE f.name = ''::bytea)
RETURNING 1
