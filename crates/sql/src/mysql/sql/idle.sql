-- $1 for how long a lock must have been free, $2 the largest token that may go, $3 the name after which to begin,
-- $4 the last one
SELECT name FROM {locks}
WHERE name > $3 AND name <= $4 AND token <= $2 AND acquired_at <= {now} - $1 AND expires_at <= {now} - $1
