-- Runs an effect in one step with the check of its token.
-- KEYS: gate, then the effect's own.  ARGV: token, then the effect's own.
-- Answers {1, what the effect returned}, {0, the largest token}, or {2, what the effect failed with}.
local newest = redis.call('get', KEYS[1])
if not newest then return redis.error_reply('NOTENTERED the gate has been emptied since') end
if newest ~= ARGV[1] then return {0, newest} end
local keys, args = {}, {}
for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
for i = 2, #ARGV do args[i - 1] = ARGV[i] end
local function effect(KEYS, ARGV)
--EFFECT--
end
-- An error of the effect is never an answer of the server's: those are followed, and sent again.
local done, value = pcall(effect, keys, args)
if done and (type(value) ~= 'table' or not value.err) then return {1, value} end
if type(value) == 'table' then value = value.err end
return {2, tostring(value)}
