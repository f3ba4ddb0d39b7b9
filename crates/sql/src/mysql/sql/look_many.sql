-- $1 the mark of the statement that freed them
SELECT l.claim_id FROM {locks} AS l
WHERE l.name IN ({names}) AND l.claim_id IN ({claims}) AND l.expires_at = 0 AND l.ttl = $1
