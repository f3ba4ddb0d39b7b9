-- Takes this node's part of the lock, or says who has it.
-- KEYS: lock, fence, void.
-- ARGV: what the hold keeps but since when: id, number or 0, lock delay in ms, the holder's length, holder and note; ttl in ms;
-- the number to propose or ''.
-- Answers 1 where it was granted and the number accepted, {1, counter, token or ''} where it was granted otherwise,
-- {0, counter, ms left, id, holder, token or ''}, {-1} for a dead id, or {-2} where the counter is missing: such a node
-- takes no part. The counter is that before anything was done.
local found = redis.call('mget', KEYS[1], KEYS[2], KEYS[3])
local held, counter = found[1], found[2]
if found[3] then return {-1} end
if not counter then return {-2} end
local function another()
    local left = redis.call('pttl', KEYS[1])
    if held == '-' then return {0, counter, left, held, '', ''} end
--READ--
    local hold = read(held)
    -- Perhaps not of our making: then somebody else's lock, for as long as it is there.
    if not hold then return {0, counter, left, '', '', ''} end
    return {0, counter, left, hold.id, hold.holder, hold.token}
end
local keeps, ttl, number = ARGV[1], ARGV[2], ARGV[3]
if held then
    if held:sub(16, 48) ~= keeps:sub(1, 33) then return another() end
    -- A late copy of this request must not take away what a later extension has given.
    if redis.call('pttl', KEYS[1]) < tonumber(ttl) then redis.call('pexpire', KEYS[1], ttl) end
    local token = held:match('^%d+ %x+ (%d+)')
    return {1, counter, token and token ~= '0' and token or ''}
end
local now = redis.call('time')
-- Equal is a refusal: that number may be another's token.
local accepts = number ~= '' and tonumber(counter) < tonumber(number)
if accepts then
    -- First: where permissions end after this, no more than a number is spent.
    redis.call('set', KEYS[2], number)
else
    keeps = keeps:gsub('^(%x+) %d+', '%1 0')
end
local hold = string.format('%014.0f ', now[1] * 1000 + math.floor(now[2] / 1000)) .. keeps
-- What is no string was not among what was found.
if not redis.call('set', KEYS[1], hold, 'NX', 'PX', ttl) then return another() end
if accepts then return 1 end
return {1, counter, ''}
