-- Grants a lock that is free to the first in its queue whose client listens, and tells it; true if there is one.
local function hand(lock, fence, line)
    local ends = redis.pcall('hmget', line, 'first', 'last')
    local first, last = tonumber(ends[1]) or 1, tonumber(ends[2])
    if not last then return false end
    local now = redis.call('time')
    local moment = now[1] * 1000 + math.floor(now[2] / 1000)
    for place = first, math.min(last, first + 999) do
        local id = redis.call('hget', line, place)
        local entry = id and redis.call('hget', line, id)
        if place < last then
            redis.call('hset', line, 'first', place + 1)
            redis.call('hdel', line, place, id or place)
        else
            redis.call('del', line)
        end
        local _, till, channel, sent, ttl, holder, note, base, delay, reserve
        if entry then _, till, channel, sent, ttl, holder, note, base, delay, reserve = unpack(cmsgpack.unpack(entry)) end
        -- Listeners of this node alone, which is where they listen: in a Cluster a message goes to the others as well.
        if entry and till >= moment and redis.call('pubsub', 'numsub', channel)[2] > 0 then
            local token = reserve + math.max(
                (tonumber(redis.call('get', fence)) or 0) + 1,
                now[1] * 1000000 + now[2],
                base + 1)
            if token >= 9007199254740992 then return false end
            token = string.format('%.0f', token)
            redis.call('set', fence, token)
            redis.call('hset', lock, 'id', id, 'token', token, 'holder', holder, 'note', note, 'at', moment, 'delay', delay)
            redis.call('pexpire', lock, ttl)
            -- Nothing may fail after this.
            if redis.call('publish', channel, id .. ' ' .. token .. ' ' .. sent .. ' ' .. lock) > 0 then return true end
            redis.call('del', lock)
        end
    end
    return false
end
