-- Counts the ttl of many holds anew; never creates, never takes back, never shortens.
-- KEYS: locks.  ARGV: for each lock its id, token and a blank after each, and the ttl in ms.
-- Answers 1 for each that is still held so, else 0.
local answer = {}
for i = 1, #KEYS do
    local held, hold, ttl = redis.pcall('get', KEYS[i]), ARGV[2 * i - 1], ARGV[2 * i]
    -- The token too: a late copy of the acquire may have taken the lock anew after another had it.
    if type(held) == 'string' and held:sub(1, #hold) == hold then
        if redis.call('pttl', KEYS[i]) < tonumber(ttl) then redis.call('pexpire', KEYS[i], ttl) end
        answer[i] = 1
    else
        answer[i] = 0
    end
end
return answer
