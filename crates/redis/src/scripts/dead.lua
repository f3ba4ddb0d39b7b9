-- A script that has begun to write may go on where memory is short.
redis.call('del', KEYS[4])
redis.call('set', KEYS[4], '', 'PX', ARGV[3])
