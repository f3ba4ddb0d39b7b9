-- $1 for how long a lock must have been free, $2 the largest token that may go
DELETE d FROM {locks} AS d FORCE INDEX (PRIMARY)
WHERE d.name IN ({names}) AND d.token <= $2 AND d.acquired_at <= {now} - $1 AND d.expires_at <= {now} - $1
