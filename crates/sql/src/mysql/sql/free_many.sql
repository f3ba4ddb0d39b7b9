-- $1 a mark of this statement, so that it can be told who freed what: the ttl of a lock that nobody holds
-- means nothing else. The index is forced, since a scan would lock every row there is.
SET STATEMENT innodb_lock_wait_timeout = 0 FOR UPDATE {locks} AS l FORCE INDEX (PRIMARY) SET l.expires_at = 0, l.ttl = $1
WHERE l.name IN ({names}) AND l.claim_id IN ({claims}) AND l.expires_at <> 0
