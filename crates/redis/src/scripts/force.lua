-- Frees the lock whoever holds it, unless the key is another program's.
-- KEYS: lock, fence, queue; the lock alone in a slot that is being moved.
-- ARGV: channel, the token of the one hold that is meant or ''.
-- Answers 1 if it was freed, 0 if nobody held it or not that hold does, -1 if the key is not ours.
--HAND--
local held = redis.pcall('hmget', KEYS[1], 'id', 'token', 'at', 'delay')
if held[1] == 'forced' then return 0 end
local id, token = held[1] or '', held[2] or ''
if held.err or #id ~= 32 or not id:find('^%x+$') or not token:find('^%d+$') or #token > 16 or not held[3] then
    return -redis.call('exists', KEYS[1])
end
if ARGV[2] ~= '' and token ~= ARGV[2] then return 0 end
local left, delay = redis.call('pttl', KEYS[1]), tonumber(held[4]) or 0
redis.call('del', KEYS[1])
-- The holder has to hear of it first: nobody's until then.
if delay > 0 and left > 0 then
    redis.call('hset', KEYS[1], 'id', 'forced')
    redis.call('pexpire', KEYS[1], math.min(left, delay))
end
local done, handed = true, false
if KEYS[3] and redis.call('exists', KEYS[1]) == 0 then
    done, handed = pcall(hand, KEYS[1], KEYS[2], KEYS[3])
elseif KEYS[3] then
    -- It knows of a lease that may have been far longer.
    pcall(nudge, KEYS[1], KEYS[3])
end
-- Half a grant is none.
if not done then redis.pcall('del', KEYS[1]) end
if not handed or not done then redis.pcall('publish', ARGV[1], '') end
return 1
