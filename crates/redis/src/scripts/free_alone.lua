-- Frees the lock if the claim holds it, in a slot that is being moved, which serves one key at a time.
-- KEYS: lock.  ARGV: id and a blank, and the hold's token and a blank unless it is any.
-- Answers 1 if that hold was freed, else 0.
local held = redis.pcall('get', KEYS[1])
if type(held) ~= 'string' or held:sub(1, 33) ~= ARGV[1]:sub(1, 33) then return 0 end
redis.call('del', KEYS[1])
-- Who is queued is not told, and looks by itself.
redis.pcall('publish', KEYS[1], '')
-- Under another token it is what a late copy of the acquire took: the hold itself was lost.
if held:sub(1, #ARGV[1]) == ARGV[1] then return 1 end
return 0
