-- KEYS: lock.  ARGV: id and a blank, token and a blank.
local freed = 0
local held = redis.pcall('get', KEYS[1])
if type(held) == 'string' and held:sub(1, 33) == ARGV[1]:sub(1, 33) then
    redis.call('del', KEYS[1])
    if held:sub(1, #ARGV[1]) == ARGV[1] then freed = 1 end
    redis.pcall('publish', KEYS[1], '')
end
return freed
