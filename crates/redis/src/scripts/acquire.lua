-- Takes the lock, or says who has it.
-- KEYS: fence, dead, lock.
-- ARGV: id, ttl in ms, what else the hold keeps; where an earlier request may be on its way, for how many ms the id is dead
-- after this or 0; where tokens are reserved, how many besides the holder's: the one that is kept and answered is the last of them.
-- Answers the token, {ms left, holder or nothing}, or 0 for a dead id.
local found = redis.call('mget', KEYS[3], KEYS[1])
local held = found[1]
if held and held:sub(1, 33) == ARGV[1] .. ' ' then
    -- A late copy of this request must not take away what a later extension has given.
    -- What is asked for is written even if it is there, so that replicas have something to acknowledge.
    if redis.call('pttl', KEYS[3]) <= tonumber(ARGV[2]) then redis.call('pexpire', KEYS[3], ARGV[2]) end
    return tonumber(held:match('^%x+ (%d+)'))
end
local now = redis.call('time')
local moment = now[1] * 1000 + math.floor(now[2] / 1000)
local till = redis.call('zscore', KEYS[2], ARGV[1])
if till and tonumber(till) > moment then return 0 end
-- Perhaps not of our making: then somebody else's lock, for as long as it is there.
local function contended()
    local size, rest = (held or ''):match('^%x+ %d+ %d+ %d+ (%d+) (.*)$')
    return {redis.call('pttl', KEYS[3]), size and rest:sub(1, size) or false}
end
if held then return contended() end
local token = math.max(
    (tonumber(found[2] or redis.call('get', KEYS[1])) or 0) + 1,
    now[1] * 1000000 + now[2],
    BASE + 1)
-- From here on Lua's numbers would skip some.
if token >= 9007199254740992 then return redis.error_reply('FENCELOCK no token is left') end
token = string.format('%.0f', token)
-- First: where permissions end after this, no more than a number is spent.
redis.call('set', KEYS[1], token)
local hold = ARGV[1] .. ' ' .. token .. ' ' .. string.format('%.0f', moment) .. ' ' .. ARGV[3]
-- What is no string was not among what was found.
if not redis.call('set', KEYS[3], hold, 'NX', 'PX', ARGV[2]) then return contended() end
--SPENT--
return tonumber(token)
