-- A script that has begun to write may go on where memory is short.
redis.call('del', KEYS[2])
redis.call('set', KEYS[2], '', 'PX', ARGV[2])
