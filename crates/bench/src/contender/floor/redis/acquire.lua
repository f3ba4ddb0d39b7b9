-- KEYS: lock, fence, void.
-- ARGV: id, ttl in ms, holder, note, token base, lock delay in ms, ttl of the void in ms or 0.
-- Answers {1, token}, {0, ms left, holder or nothing}, or {-1} for a dead id.
if redis.call('exists', KEYS[1], KEYS[3]) > 0 then
    local held = redis.pcall('hmget', KEYS[1], 'id', 'token', 'holder')
    if held[1] == ARGV[1] then
        if redis.call('pttl', KEYS[1]) <= tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
        return {1, held[2]}
    end
    if redis.call('exists', KEYS[3]) == 1 then return {-1} end
    return {0, redis.call('pttl', KEYS[1]), held[3] or false}
end
local now = redis.call('time')
local token = math.max(
    (tonumber(redis.call('get', KEYS[2])) or 0) + 1,
    now[1] * 1000000 + now[2],
    tonumber(ARGV[5]) + 1)
if token >= 9007199254740992 then return redis.error_reply('FENCELOCK no token is left') end
token = string.format('%.0f', token)
redis.call('set', KEYS[2], token)
redis.call('hset', KEYS[1], 'id', ARGV[1], 'token', token, 'holder', ARGV[3], 'note', ARGV[4],
    'at', now[1] * 1000 + math.floor(now[2] / 1000), 'delay', ARGV[6])
local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
if type(expires) == 'table' then
    redis.pcall('del', KEYS[1])
    return expires
end
if ARGV[7] ~= '0' then redis.call('set', KEYS[3], '', 'PX', ARGV[7]) end
return {1, token}
