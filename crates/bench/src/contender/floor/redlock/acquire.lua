-- Takes this node's part of the lock, or says who has it.
-- KEYS: lock, fence, void.  ARGV: what the hold keeps but since when, ttl in ms, a number to propose or ''.
-- Answers 1 where the number was accepted, {1, counter, token or ''}, {0, counter, ms left, hold}, {-1} for a dead id, or {-2}
-- where the counter is missing: such a node takes no part.
local found = redis.call('mget', KEYS[1], KEYS[2], KEYS[3])
local held, counter = found[1], found[2]
if found[3] then return {-1} end
if not counter then return {-2} end
if held then
    local left = redis.call('pttl', KEYS[1])
    if held:sub(16, 48) ~= ARGV[1]:sub(1, 33) then return {0, counter, left, held} end
    if left < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
    return {1, counter, held:match('^%d+ %x+ (%d+)')}
end
local now = redis.call('time')
local keeps, number = ARGV[1], ARGV[3]
local accepts = number ~= '' and tonumber(counter) < tonumber(number)
if accepts then redis.call('set', KEYS[2], number) else keeps = keeps:gsub('^(%x+) %d+', '%1 0') end
local hold = string.format('%014.0f ', now[1] * 1000 + math.floor(now[2] / 1000)) .. keeps
if not redis.call('set', KEYS[1], hold, 'NX', 'PX', ARGV[2]) then return {0, counter, redis.call('pttl', KEYS[1]), ''} end
if accepts then return 1 end
return {1, counter, ''}
