-- Notes a token that a majority has accepted with the claim's hold, where that was not done when it was proposed.
-- KEYS: lock.  ARGV: token, id.  Answers 1 if the claim holds here, else 0.
local held = redis.pcall('hmget', KEYS[1], 'id', 'token')
if held[1] ~= ARGV[2] then return 0 end
-- A late copy must not bring an older token back.
if tonumber(held[2] or 0) < tonumber(ARGV[1]) then redis.call('hset', KEYS[1], 'token', ARGV[1]) end
return 1
