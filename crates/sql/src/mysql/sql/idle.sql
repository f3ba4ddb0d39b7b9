-- $1 for how long a lock must have been free, $2 the largest token that may go
SELECT name FROM {locks} WHERE name <> '' AND token <= $2 AND acquired_at <= {now} - $1 AND expires_at <= {now} - $1
