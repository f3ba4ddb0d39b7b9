-- KEYS: lock.  ARGV: id, token, channel.
local freed = 0
local held = redis.pcall('hmget', KEYS[1], 'id', 'token')
if held[1] == ARGV[1] then
    redis.call('del', KEYS[1])
    if ARGV[2] == '' or held[2] == ARGV[2] then freed = 1 end
    redis.pcall('publish', ARGV[3], '')
end
return freed
