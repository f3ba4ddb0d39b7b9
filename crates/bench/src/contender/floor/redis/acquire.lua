-- KEYS: fence, dead, lock.
-- ARGV: id, ttl in ms, what else the hold keeps.
-- Answers the token, {ms left, holder or nothing}, or 0 for a dead id.
local found = redis.call('mget', KEYS[3], KEYS[1])
local held = found[1]
if held and held:sub(1, 33) == ARGV[1] .. ' ' then
    if redis.call('pttl', KEYS[3]) <= tonumber(ARGV[2]) then redis.call('pexpire', KEYS[3], ARGV[2]) end
    return tonumber(held:match('^%x+ (%d+)'))
end
local now = redis.call('time')
local moment = now[1] * 1000 + math.floor(now[2] / 1000)
local till = redis.call('zscore', KEYS[2], ARGV[1])
if till and tonumber(till) > moment then return 0 end
local function contended()
    local size, rest = (held or ''):match('^%x+ %d+ %d+ %d+ (%d+) (.*)$')
    return {redis.call('pttl', KEYS[3]), size and rest:sub(1, size) or false}
end
if held then return contended() end
local token = math.max(
    (tonumber(found[2] or redis.call('get', KEYS[1])) or 0) + 1,
    now[1] * 1000000 + now[2])
if token >= 9007199254740992 then return redis.error_reply('FENCELOCK no token is left') end
token = string.format('%.0f', token)
redis.call('set', KEYS[1], token)
local hold = ARGV[1] .. ' ' .. token .. ' ' .. string.format('%.0f', moment) .. ' ' .. ARGV[3]
if not redis.call('set', KEYS[3], hold, 'NX', 'PX', ARGV[2]) then return contended() end
return tonumber(token)
