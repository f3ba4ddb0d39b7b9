-- What an acquire does besides that waits if the lock is held.
-- KEYS: the queue is the fourth.  ARGV: after the tokens to reserve, the channel on which its client is told, and when
-- it was sent, as its client counts time.

-- Puts the claim in the queue, or its newest request in the place of an earlier one. The shortest ttl in the queue, or 0
-- if it is not there: whoever is handed the lock before it has it for that long unseen, at the least.
local function queue()
    local heard = redis.pcall('pubsub', 'numsub', ARGV[6])
    if heard.err or heard[2] == 0 then return 0 end
    local known = redis.pcall('hmget', KEYS[4], ARGV[1], 'last', 'least')
    if known.err then return 0 end
    local now = redis.call('time')
    -- Who does not ask again, as waiters do every 5 s, is passed over.
    local till = now[1] * 1000 + math.floor(now[2] / 1000) + 15000
    local place = known[1] and cmsgpack.unpack(known[1])[1] or (tonumber(known[2]) or 0) + 1
    local entry = cmsgpack.pack({place, till, ARGV[6], ARGV[7], ARGV[2], ARGV[3], BASE, tonumber(ARGV[5])})
    local least, done = math.min(tonumber(known[3]) or ARGV[2], ARGV[2])
    if known[1] then
        done = redis.pcall('hset', KEYS[4], ARGV[1], entry, 'least', least)
    else
        -- Without it nobody could be handed the lock.
        if type(redis.pcall('hdel', KEYS[4], ARGV[1])) == 'table' then return 0 end
        done = redis.pcall('hset', KEYS[4], ARGV[1], entry, place, ARGV[1], 'last', place, 'least', least)
    end
    if type(done) == 'table' then return 0 end
    done = redis.pcall('pexpire', KEYS[4], 15000)
    if type(done) == 'table' then
        redis.pcall('del', KEYS[4])
        return 0
    end
    return least
end
