-- Frees the lock if the claim holds it, for the first of its queue or else for whoever comes, takes the claim out
-- of the queue, and makes the id dead where asked.
-- KEYS: fence, dead, lock, queue.
-- ARGV: id and a blank, and the hold's token and a blank unless it is any; for how many ms the id is to be dead, if it is.
-- Answers 1 if that hold was freed, else 0.
local freed = 0
local held, id = redis.pcall('get', KEYS[3]), ARGV[1]:sub(1, 32)
local holds = type(held) == 'string' and held:sub(1, 33) == id .. ' '
if holds then
    redis.call('del', KEYS[3])
    -- Under another token it is what a late copy of the acquire took: the hold itself was lost.
    if held:sub(1, #ARGV[1]) == ARGV[1] then freed = 1 end
end
--DEAD--
local handed = false
if redis.call('exists', KEYS[4]) == 1 then
--HAND--
    pcall(leave, KEYS[4], id)
    if holds then
        local done
        done, handed = pcall(hand, KEYS[3], KEYS[1], KEYS[4])
        if not done then
            -- Half a grant is none.
            redis.pcall('del', KEYS[3])
            handed = false
        end
    end
end
-- Waiters who are not told look by themselves.
if holds and not handed then redis.pcall('publish', KEYS[3], '') end
return freed
