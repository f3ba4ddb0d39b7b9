-- Who holds the lock.
-- KEYS: lock.
-- Answers {} if nobody, {ms left} for a key of another program, or {ms left, id, token, holder, note, ms held}.
local held = redis.pcall('hmget', KEYS[1], 'id', 'token', 'holder', 'note', 'at')
local left = redis.call('pttl', KEYS[1])
if left == -2 or held[1] == 'forced' then return {} end
local id, token = held[1] or '', held[2] or ''
if held.err or #id ~= 32 or not id:find('^%x+$') or not token:find('^%d+$') or #token > 16 or not held[5] then
    return {left}
end
local now = redis.call('time')
return {left, id, token, held[3], held[4], now[1] * 1000 + math.floor(now[2] / 1000) - (tonumber(held[5]) or 0)}
