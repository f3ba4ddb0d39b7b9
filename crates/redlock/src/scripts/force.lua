-- Frees this node's part of the lock whoever holds it, unless the key is another program's.
-- KEYS: lock.  ARGV: channel.
-- Answers 1 if it was freed, 0 if nobody held it, -1 if the key is not ours.
if redis.call('exists', KEYS[1]) == 0 then return 0 end
local id = redis.pcall('hget', KEYS[1], 'id')
if type(id) ~= 'string' then return -1 end
redis.call('del', KEYS[1])
redis.pcall('publish', ARGV[1], '')
return 1
