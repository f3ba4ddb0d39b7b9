-- Ends whoever's hold of this node's part of the lock, unless the key is another program's.
-- KEYS: lock, fence.  ARGV: channel, the id that no claim has, the id of the one claim that is meant or ''.
-- A hold that asked for a lock delay leaves the lock closed under that id: for the delay, or what was left.
-- Answers {1, id, token or ''} if it was held, {0} if not or not by that claim, {-1} if the key is not ours.
-- An acquire may have been here already, and not yet be where this was: with the counter raised the number that
-- it carries is refused there, so it asks again whether its parts are still its own, before it is a hold. The step is
-- larger than any client is ahead of the counters, and any node behind the others, which it can only be by tries in vain.
local function raise()
    local counter = tonumber(redis.pcall('get', KEYS[2]) or '')
    if counter and counter < 2 ^ 52 then redis.pcall('set', KEYS[2], string.format('%.0f', counter + 2 ^ 20)) end
end
if redis.call('exists', KEYS[1]) == 0 then
    raise()
    return {0}
end
local held = redis.pcall('hmget', KEYS[1], 'id', 'token', 'delay')
if held.err or not held[1] then return {-1} end
if held[1] == ARGV[2] or (ARGV[3] ~= '' and held[1] ~= ARGV[3]) then
    raise()
    return {0}
end
local delay = tonumber(held[3] or 0)
if delay > 0 then
    redis.call('hset', KEYS[1], 'id', ARGV[2])
    redis.call('hdel', KEYS[1], 'token', 'holder', 'note', 'delay', 'at')
    if redis.call('pttl', KEYS[1]) > delay then redis.call('pexpire', KEYS[1], delay) end
else
    redis.call('del', KEYS[1])
end
-- After the script has written: that is allowed where memory is full.
raise()
-- Waiters who are not told look by themselves.
redis.pcall('publish', ARGV[1], '')
return {1, held[1], held[2] or ''}
