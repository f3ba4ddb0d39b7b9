-- Frees this node's part of the lock if the claim holds it, tells the waiters, and makes the id dead where asked.
-- KEYS: lock, void.  ARGV: id, ttl of the void in ms or 0, channel.
-- Answers 1 if it was freed, else 0.
local freed = 0
if redis.pcall('hget', KEYS[1], 'id') == ARGV[1] then
    freed = redis.call('del', KEYS[1])
    redis.pcall('publish', ARGV[3], '')
end
if ARGV[2] ~= '0' then redis.call('set', KEYS[2], '', 'PX', ARGV[2]) end
return freed
