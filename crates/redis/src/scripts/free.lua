-- Frees the lock if the claim holds it, tells the waiters, and makes the id dead where asked.
-- KEYS: lock, and void if the id is to be dead.
-- ARGV: id, the hold's token or nothing for any, channel, ttl of the void in ms or 0.
-- Answers 1 if that hold was freed, else 0.
local freed = 0
local held = redis.pcall('hmget', KEYS[1], 'id', 'token')
if held[1] == ARGV[1] then
    redis.call('del', KEYS[1])
    -- Under another token it is what a late copy of the acquire took: the hold itself was lost.
    if ARGV[2] == '' or held[2] == ARGV[2] then freed = 1 end
    -- Waiters who are not told look by themselves.
    redis.pcall('publish', ARGV[3], '')
end
if ARGV[4] ~= '0' then
    -- A script that has begun to write may go on where memory is short.
    redis.call('del', KEYS[2])
    redis.call('set', KEYS[2], '', 'PX', ARGV[4])
end
return freed
