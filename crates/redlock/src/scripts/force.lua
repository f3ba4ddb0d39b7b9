-- Ends whoever's hold of this node's part of the lock, unless the key is another program's.
-- KEYS: lock, fence.  ARGV: the id of the one claim that is meant or ''.
-- A hold that asked for a lock delay leaves the lock closed: for the delay, or what was left.
-- Answers {1, id, token or ''} if it was held, {0} if not or not by that claim, {-1} if the key is not ours.
-- An acquire may have been here already, and not yet be where this was: with the counter raised the number that
-- it carries is refused there, so it asks again whether its parts are still its own, before it is a hold. The step is
-- larger than any client is ahead of the counters, and any node behind the others, which it can only be by tries in vain.
local function raise()
    local counter = tonumber(redis.pcall('get', KEYS[2]) or '')
    if counter and counter < 2 ^ 52 then redis.pcall('set', KEYS[2], string.format('%.0f', counter + 2 ^ 20)) end
end
--READ--
local held = redis.pcall('get', KEYS[1])
local hold = read(held)
if not hold and held ~= '-' and redis.call('exists', KEYS[1]) == 1 then return {-1} end
if not hold or (ARGV[1] ~= '' and hold.id ~= ARGV[1]) then
    raise()
    return {0}
end
local left = redis.call('pttl', KEYS[1])
redis.call('del', KEYS[1])
-- The holder has to hear of it first: nobody's until then.
if hold.delay > 0 and left ~= 0 then
    redis.call('set', KEYS[1], '-', 'PX', left > 0 and math.min(left, hold.delay) or hold.delay)
end
-- After the script has written: that is allowed where memory is full.
raise()
-- Waiters who are not told look by themselves.
redis.pcall('publish', KEYS[1], '')
return {1, hold.id, hold.token}
