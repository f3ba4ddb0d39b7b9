-- Frees the lock if the claim holds it, for the first of its queue or else for whoever comes, takes the claim out
-- of the queue, and makes the id dead where asked.
-- KEYS: lock, fence, queue, and void if the id is to be dead.
-- ARGV: id, the hold's token or nothing for any, channel, ttl of the void in ms or 0.
-- Answers 1 if that hold was freed, else 0.
local freed = 0
local held = redis.pcall('hmget', KEYS[1], 'id', 'token')
local holds = held[1] == ARGV[1]
if holds then
    redis.call('del', KEYS[1])
    -- Under another token it is what a late copy of the acquire took: the hold itself was lost.
    if ARGV[2] == '' or held[2] == ARGV[2] then freed = 1 end
end
-- A script that has begun to write may go on where memory is short.
if ARGV[4] ~= '0' then
    redis.call('del', KEYS[4])
    redis.call('set', KEYS[4], '', 'PX', ARGV[4])
end
local handed = false
if redis.call('exists', KEYS[3]) == 1 then
--HAND--
    pcall(leave, KEYS[3], ARGV[1])
    if holds then
        local done
        done, handed = pcall(hand, KEYS[1], KEYS[2], KEYS[3])
        if not done then
            -- Half a grant is none.
            redis.pcall('del', KEYS[1])
            handed = false
        end
    end
end
-- Waiters who are not told look by themselves.
if holds and not handed then redis.pcall('publish', ARGV[3], '') end
return freed
