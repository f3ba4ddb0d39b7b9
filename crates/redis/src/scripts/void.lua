-- Makes an id dead, by itself: a slot that is being moved serves one key at a time.
-- KEYS: void.  ARGV: its ttl in ms.
redis.call('del', KEYS[1])
return redis.call('set', KEYS[1], '', 'PX', ARGV[1])
