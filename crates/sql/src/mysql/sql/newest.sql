-- $1 for how long a lock must have been free
SELECT MAX(token) FROM {locks} WHERE name <> '' AND acquired_at <= {now} - $1 AND expires_at <= {now} - $1
