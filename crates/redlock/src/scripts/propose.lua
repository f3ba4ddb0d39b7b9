-- Raises the counter to a token that is larger than it, and notes the token with the claim's hold.
-- KEYS: lock, fence.  ARGV: token, id.
-- Answers {1, counter before, whether the claim holds here}, {0, counter, whether it does} if the
-- counter is not smaller (equal is a refusal: that token may be another's), or {-2} where there is none.
local counter = redis.call('get', KEYS[2])
if not counter then return {-2} end
local held = redis.pcall('get', KEYS[1])
local holds = type(held) == 'string' and held:sub(16, 48) == ARGV[2] .. ' '
if tonumber(counter) >= tonumber(ARGV[1]) then return {0, counter, holds and 1 or 0} end
redis.call('set', KEYS[2], ARGV[1])
local before, token, rest = nil, nil, nil
if holds then before, token, rest = held:match('^(%d+ %x+ )(%d+)( .*)$') end
-- A late copy must not bring an older token back.
if token and tonumber(token) < tonumber(ARGV[1]) then
    redis.call('set', KEYS[1], before .. ARGV[1] .. rest, 'KEEPTTL')
end
return {1, counter, holds and 1 or 0}
