-- Notes a token that a majority has accepted with the claim's hold, where that was not done when it was proposed.
-- KEYS: lock.  ARGV: token, id.  Answers 1 if the claim holds here, else 0.
local held = redis.pcall('get', KEYS[1])
if type(held) ~= 'string' or held:sub(16, 48) ~= ARGV[2] .. ' ' then return 0 end
local before, token, rest = held:match('^(%d+ %x+ )(%d+)( .*)$')
-- A late copy must not bring an older token back.
if token and tonumber(token) < tonumber(ARGV[1]) then
    redis.call('set', KEYS[1], before .. ARGV[1] .. rest, 'KEEPTTL')
end
return 1
