-- Takes a claim out of a queue, if it is there.
local function leave(line, id)
    local entry = redis.pcall('hget', line, id)
    if type(entry) ~= 'string' then return end
    redis.call('hdel', line, id, cmsgpack.unpack(entry)[1])
    -- Where it begins and ends are fields too.
    if redis.call('hlen', line) <= 2 then redis.call('del', line) end
end
