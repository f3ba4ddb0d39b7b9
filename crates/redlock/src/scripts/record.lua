-- Replaces the node's own record, if it is as expected.
-- KEYS: record.  ARGV: as expected or '' for none, the new one.  Answers {1}, or {0, what is there or ''}.
local found = redis.call('get', KEYS[1]) or ''
if found ~= ARGV[1] then return {0, found} end
redis.call('set', KEYS[1], ARGV[2])
return {1}
