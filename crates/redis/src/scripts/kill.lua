-- Makes an id dead for so many ms. What is over is taken out first: a script that has begun to write so may go on where memory
-- is short.
local function kill(dead, id, ttl)
    local now = redis.call('time')
    local moment = now[1] * 1000 + math.floor(now[2] / 1000)
    redis.call('zremrangebyscore', dead, '-inf', string.format('%.0f', moment))
    redis.call('zadd', dead, string.format('%.0f', moment + ttl), id)
    if redis.call('pttl', dead) < tonumber(ttl) then redis.call('pexpire', dead, ttl) end
end
