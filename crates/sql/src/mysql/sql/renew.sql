-- $1 server ttl
-- The index is forced, since a scan would lock every row there is.
UPDATE {locks} AS l FORCE INDEX (PRIMARY) SET
  -- never back: a renewal may come after one that gave more
  l.expires_at = GREATEST(l.expires_at, {now} + $1),
  l.ttl        = $1
WHERE l.name IN ({names}) AND l.claim_id IN ({claims}) AND l.expires_at > {now}
