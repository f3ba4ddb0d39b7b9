-- Takes a claim out of a queue, if it is there.
local function leave(line, id)
    local entry = redis.pcall('hget', line, id)
    if type(entry) ~= 'string' then return end
    redis.call('hdel', line, id, cmsgpack.unpack(entry)[1])
    -- What it says of itself is in three fields.
    if redis.call('hlen', line) <= 3 then redis.call('del', line) end
end
