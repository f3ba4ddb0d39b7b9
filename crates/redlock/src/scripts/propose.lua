-- Raises the counter to a token that is larger than it, and notes the token with the claim's hold.
-- KEYS: fence, lock.  ARGV: token, id.
-- Answers {1, counter before, whether the claim holds here}, {0, counter, whether it does} if the
-- counter is not smaller (equal is a refusal: that token may be another's), or {-2} where there is none.
local counter = redis.call('get', KEYS[1])
if not counter then return {-2} end
local held = redis.pcall('hmget', KEYS[2], 'id', 'token')
local holds = held[1] == ARGV[2] and 1 or 0
if tonumber(counter) >= tonumber(ARGV[1]) then return {0, counter, holds} end
redis.call('set', KEYS[1], ARGV[1])
-- A late copy must not bring an older token back.
if holds == 1 and tonumber(held[2] or 0) < tonumber(ARGV[1]) then redis.call('hset', KEYS[2], 'token', ARGV[1]) end
return {1, counter, holds}
