-- Who holds this node's part of the lock.
-- KEYS: lock.  ARGV: the id that no claim has.
-- Answers {} if nobody, {ms left} for a key of another program, or {ms left, id, token or '', holder, note, ms held}.
local held = redis.pcall('hmget', KEYS[1], 'id', 'token', 'holder', 'note', 'at')
local left = redis.call('pttl', KEYS[1])
if left == -2 or held[1] == ARGV[1] then return {} end
if held.err or not held[1] then return {left} end
local now = redis.call('time')
return {left, held[1], held[2] or '', held[3] or '', held[4] or '',
    now[1] * 1000 + math.floor(now[2] / 1000) - (tonumber(held[5]) or 0)}
