-- Counts the ttl of many holds anew; never creates, never takes back, never shortens.
-- KEYS: locks.  ARGV: for each lock its id, token and ttl in ms.
-- Answers 1 for each that is still held so, else 0.
local answer = {}
for i = 1, #KEYS do
    local at = (i - 1) * 3
    local held = redis.pcall('hmget', KEYS[i], 'id', 'token')
    -- The token too: a late copy of the acquire may have taken the lock anew after another had it.
    if held[1] == ARGV[at + 1] and held[2] == ARGV[at + 2] then
        if redis.call('pttl', KEYS[i]) < tonumber(ARGV[at + 3]) then
            redis.call('pexpire', KEYS[i], ARGV[at + 3])
        end
        answer[i] = 1
    else
        answer[i] = 0
    end
end
return answer
