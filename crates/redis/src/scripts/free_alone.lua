-- Frees the lock if the claim holds it, in a slot that is being moved, which serves one key at a time.
-- KEYS: lock.  ARGV: id, the hold's token or nothing for any, channel.
-- Answers 1 if that hold was freed, else 0.
local held = redis.pcall('hmget', KEYS[1], 'id', 'token')
if held[1] ~= ARGV[1] then return 0 end
redis.call('del', KEYS[1])
-- Who is queued is not told, and looks by itself.
redis.pcall('publish', ARGV[3], '')
-- Under another token it is what a late copy of the acquire took: the hold itself was lost.
if ARGV[2] == '' or held[2] == ARGV[2] then return 1 end
return 0
