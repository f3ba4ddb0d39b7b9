-- Has the first in the queue whose client listens look by itself: a grant of no time at all.
local function nudge(lock, line)
    local ends = redis.call('hmget', line, 'first', 'last')
    local first, last = tonumber(ends[1]) or 1, tonumber(ends[2]) or 0
    for place = first, math.min(last, first + 999) do
        local id = redis.call('hget', line, place)
        local entry = id and redis.call('hget', line, id)
        if entry and redis.call('publish', cmsgpack.unpack(entry)[3], id .. ' 0 0 ' .. lock) > 0 then return end
    end
end
