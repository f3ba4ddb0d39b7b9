-- Many requests in one call: each by itself, as if it had come alone and right after the one before it.
-- KEYS: those of all requests, one after the other.  ARGV: for each request its verb, then its own.
-- Answers what each is answered; one that fails fails alone.
local verbs = {
--VERBS--
}
local answers, key, arg = {}, 0, 0
while arg < #ARGV do
    local verb = verbs[tonumber(ARGV[arg + 1])]
    local keys = {unpack(KEYS, key + 1, key + verb[1])}
    local args = {unpack(ARGV, arg + 2, arg + 1 + verb[2])}
    key, arg = key + verb[1], arg + 1 + verb[2]
    local done, answer = pcall(verb[3], keys, args)
    -- Before 7.0 a failure is words.
    if not done and type(answer) ~= 'table' then answer = {err = 'ERR ' .. tostring(answer)} end
    answers[#answers + 1] = answer
end
return answers
