-- Frees this node's part of the lock if the claim holds it, and tells the waiters.
-- KEYS: lock.  ARGV: id.
-- Answers 1 if it was freed, else 0.
local freed = 0
local held = redis.pcall('get', KEYS[1])
if type(held) == 'string' and held:sub(16, 48) == ARGV[1] .. ' ' then
    freed = redis.call('del', KEYS[1])
    redis.pcall('publish', KEYS[1], '')
end
return freed
