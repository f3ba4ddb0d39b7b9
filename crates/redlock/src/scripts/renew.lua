-- Counts the ttl anew, of each of several holds; never creates, never takes back, never shortens.
-- KEYS: locks.  ARGV: for each its id, token, ttl in ms.
-- Answers for each 1 if it is still held so, 2 if the claim holds here and its token is not noted, else 0.
local answers = {}
for i, key in ipairs(KEYS) do
    local held = redis.pcall('get', key)
    local id, token, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
    local noted = type(held) == 'string' and held:sub(16, 48) == id .. ' ' and held:match('^%d+ %x+ (%d+) ')
    -- The token too: a late copy of the acquire may have taken the lock anew after another had it.
    if not noted then
        answers[i] = 0
    -- None, or a smaller one: a number that the claim's own acquire brought along, and that was not its token.
    elseif tonumber(noted) < tonumber(token) then
        answers[i] = 2
    elseif noted ~= token then
        answers[i] = 0
    else
        if redis.call('pttl', key) < tonumber(ttl) then redis.call('pexpire', key, ttl) end
        answers[i] = 1
    end
end
return answers
