-- Frees this node's part of the lock if the claim holds it, tells the waiters, and makes the id dead where asked.
-- KEYS: lock, and void if the id is to be dead.  ARGV: id; ttl of the void in ms if there is one.
-- Answers 1 if it was freed, else 0.
local freed = 0
local held = redis.pcall('get', KEYS[1])
if type(held) == 'string' and held:sub(16, 48) == ARGV[1] .. ' ' then
    freed = redis.call('del', KEYS[1])
    -- Waiters who are not told look by themselves.
    redis.pcall('publish', KEYS[1], '')
end
--DEAD--
return freed
