-- $1 for how long a lock must have been free, $2 the name after which to begin, $3 the last one
WITH idle AS MATERIALIZED (
  SELECT i.name FROM {locks} AS i
  WHERE i.name > $2 AND i.name <= $3 AND i.acquired_at <= {now} - $1 AND i.expires_at <= {now} - $1
    AND i.token <= (SELECT f.token FROM {locks} AS f WHERE f.name = ''::bytea)
  -- one that a transaction has to itself is in use
  FOR UPDATE OF i SKIP LOCKED
)
DELETE FROM {locks} AS d USING idle
WHERE d.name = idle.name AND d.acquired_at <= {now} - $1 AND d.expires_at <= {now} - $1
RETURNING 1
