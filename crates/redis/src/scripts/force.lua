-- Frees the lock whoever holds it, unless the key is another program's.
-- KEYS: lock, fence, queue; the lock alone in a slot that is being moved.
-- ARGV: the token of the one hold that is meant or ''.
-- Answers 1 if it was freed, 0 if nobody held it or not that hold does, -1 if the key is not ours.
--READ--
--HAND--
local held = redis.pcall('get', KEYS[1])
if held == 'forced' then return 0 end
local hold = read(held)
if not hold then return -redis.call('exists', KEYS[1]) end
if ARGV[1] ~= '' and hold.token ~= ARGV[1] then return 0 end
local left = redis.call('pttl', KEYS[1])
redis.call('del', KEYS[1])
-- The holder has to hear of it first: nobody's until then.
if hold.delay > 0 and left > 0 then redis.call('set', KEYS[1], 'forced', 'PX', math.min(left, hold.delay)) end
local done, handed = true, false
if KEYS[3] and redis.call('exists', KEYS[1]) == 0 then
    done, handed = pcall(hand, KEYS[1], KEYS[2], KEYS[3])
elseif KEYS[3] then
    -- It knows of a lease that may have been far longer.
    pcall(nudge, KEYS[1], KEYS[3])
end
-- Half a grant is none.
if not done then redis.pcall('del', KEYS[1]) end
if not handed or not done then redis.pcall('publish', KEYS[1], '') end
return 1
