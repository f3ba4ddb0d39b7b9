-- Takes this node's part of the lock, or says who has it.
-- KEYS: lock, fence, void.  ARGV: id, ttl in ms, holder, note, lock delay in ms, a number to propose or ''.
-- Answers {1, counter, token or ''}, {0, counter, ms left, id, holder, token or ''},
-- {-1} for a dead id, or {-2} where the counter is missing: such a node takes no part.
-- The counter is that before the number was accepted, as the token then is.
local there = redis.call('exists', KEYS[1], KEYS[3]) > 0
if there and redis.call('exists', KEYS[3]) == 1 then return {-1} end
local counter = redis.call('get', KEYS[2])
if not counter then return {-2} end
if there then
    local held = redis.pcall('hmget', KEYS[1], 'id', 'token', 'holder')
    local left = redis.call('pttl', KEYS[1])
    -- Perhaps not of our making: then somebody else's lock, for as long as it is there.
    if held.err or not held[1] then return {0, counter, left, '', '', ''} end
    if held[1] ~= ARGV[1] then return {0, counter, left, held[1], held[3] or '', held[2] or ''} end
    -- A late copy of this request must not take away what a later extension has given.
    if left < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
    return {1, counter, held[2] or ''}
end
local now = redis.call('time')
local part = {'id', ARGV[1], 'holder', ARGV[3], 'note', ARGV[4], 'delay', ARGV[5],
    'at', now[1] * 1000 + math.floor(now[2] / 1000)}
local token = ''
-- Equal is a refusal: that number may be another's token.
if ARGV[6] ~= '' and tonumber(counter) < tonumber(ARGV[6]) then
    token = ARGV[6]
    part[11], part[12] = 'token', token
    -- First: where permissions end after this, no more than a number is spent.
    redis.call('set', KEYS[2], token)
end
redis.call('hset', KEYS[1], unpack(part))
-- Where permissions end between the two commands, no lock without an end may stay behind.
local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
if type(expires) == 'table' then
    redis.pcall('del', KEYS[1])
    return expires
end
return {1, counter, token}
