SELECT l.claim_id FROM {locks} AS l FORCE INDEX (PRIMARY)
WHERE l.name IN ({names}) AND l.claim_id IN ({claims})
FOR UPDATE SKIP LOCKED
