-- Raises the counter to a token that is larger than it, and notes the token with the claim's hold.
-- KEYS: fence, lock.  ARGV: token, id.
-- Answers {1, whether the claim holds here}, {0, counter} if the counter is not smaller
-- (equal is a refusal: that token may be another's), or {-2} where there is no counter.
local counter = redis.call('get', KEYS[1])
if not counter then return {-2} end
if tonumber(counter) >= tonumber(ARGV[1]) then return {0, counter} end
redis.call('set', KEYS[1], ARGV[1])
if redis.pcall('hget', KEYS[2], 'id') ~= ARGV[2] then return {1, 0} end
redis.call('hset', KEYS[2], 'token', ARGV[1])
return {1, 1}
