-- Who holds this node's part of the lock.
-- KEYS: lock.
-- Answers {} if nobody, {ms left} for a key of another program, or {ms left, id, token or '', holder, note, ms held}.
local held = redis.pcall('get', KEYS[1])
local left = redis.call('pttl', KEYS[1])
if left == -2 or held == '-' then return {} end
--READ--
local hold = read(held)
if not hold then return {left} end
local now = redis.call('time')
return {left, hold.id, hold.token, hold.holder, hold.note, now[1] * 1000 + math.floor(now[2] / 1000) - hold.at}
