-- Grants a lock that is free to the first in its queue whose client listens, and tells it; true if there is one.
local function hand(lock, fence, line)
    local ends = redis.pcall('hmget', line, 'first', 'last')
    local first, last = tonumber(ends[1]) or 1, tonumber(ends[2])
    if not last then return false end
    local now = redis.call('time')
    local moment = now[1] * 1000 + math.floor(now[2] / 1000)
    local place, seen = first, 0
    while place <= last and seen < 1000 and place < first + 10000 do
        local id = redis.call('hget', line, place)
        -- Whoever gave up has left a gap, which is passed by unseen.
        if id or place == last then seen = seen + 1 end
        local entry = id and redis.call('hget', line, id)
        if place == last then
            redis.call('del', line)
        elseif id then
            redis.call('hset', line, 'first', place + 1)
            redis.call('hdel', line, place, id)
        end
        local _, till, channel, sent, ttl, rest, base, reserve
        if entry then _, till, channel, sent, ttl, rest, base, reserve = unpack(cmsgpack.unpack(entry)) end
        -- Listeners of this node alone, which is where they listen: in a Cluster a message goes to the others as well.
        -- Who may not ask finds out by telling.
        local heard = entry and till >= moment and redis.pcall('pubsub', 'numsub', channel)
        if heard and (heard.err or heard[2] > 0) then
            local token = reserve + math.max(
                (tonumber(redis.call('get', fence)) or 0) + 1,
                now[1] * 1000000 + now[2],
                base + 1)
            if token >= 9007199254740992 then return false end
            token = string.format('%.0f', token)
            redis.call('set', fence, token)
            local at = string.format('%.0f', moment)
            redis.call('set', lock, id .. ' ' .. token .. ' ' .. at .. ' ' .. rest, 'PX', ttl)
            -- Nothing may fail after this.
            if redis.call('publish', channel, id .. ' ' .. token .. ' ' .. sent .. ' ' .. lock) > 0 then return true end
            redis.call('del', lock)
        end
        place = place + 1
    end
    if place <= last and place > first then redis.call('hset', line, 'first', place) end
    return false
end
