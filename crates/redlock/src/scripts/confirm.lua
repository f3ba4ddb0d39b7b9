-- Notes a token that a majority has accepted with the claim's hold, where the counter had refused it.
-- KEYS: lock.  ARGV: token, id.  Answers 1 if the claim holds here, else 0.
if redis.pcall('hget', KEYS[1], 'id') ~= ARGV[2] then return 0 end
redis.call('hset', KEYS[1], 'token', ARGV[1])
return 1
