-- Counts the ttl anew; never creates, never takes back, never shortens.
-- KEYS: lock.  ARGV: id, token, ttl in ms.  Answers 1 if it is still held so, else 0.
local held = redis.pcall('hmget', KEYS[1], 'id', 'token')
-- The token too: a late copy of the acquire may have taken the lock anew after another had it.
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then redis.call('pexpire', KEYS[1], ARGV[3]) end
return 1
