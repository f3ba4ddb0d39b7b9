-- Raises the resource's largest token, or finds this one too old.
-- KEYS: gate.  ARGV: token.  Answers {1}, or {0, the largest}.
local newest = redis.call('get', KEYS[1])
-- Decimal numbers without leading zeros, which Lua's own numbers would round.
if newest and (#newest > #ARGV[1] or (#newest == #ARGV[1] and newest > ARGV[1])) then return {0, newest} end
if newest ~= ARGV[1] then redis.call('set', KEYS[1], ARGV[1]) end
return {1}
