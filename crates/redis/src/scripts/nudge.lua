-- Has the first in the queue whose client listens look by itself: a grant of no time at all.
local function nudge(lock, line)
    local ends = redis.call('hmget', line, 'first', 'last')
    local first, last = tonumber(ends[1]) or 1, tonumber(ends[2]) or 0
    local now = redis.call('time')
    local moment = now[1] * 1000 + math.floor(now[2] / 1000)
    for place = first, math.min(last, first + 9999) do
        local id = redis.call('hget', line, place)
        local entry = id and redis.call('hget', line, id)
        local asked = entry and cmsgpack.unpack(entry)
        if asked and asked[2] >= moment and redis.call('publish', asked[3], id .. ' 0 0 ' .. lock) > 0 then return end
    end
end
