-- Many requests in one call: each by itself, as if it had come alone and right after the one before it.
-- KEYS: those of all requests, one after the other.  ARGV: for each request its verb, then its own.
-- Answers what each is answered; one that fails fails alone.
local K, A, call, try = KEYS, ARGV, redis.call, redis.pcall
local moment
-- While a script runs no time passes.
local function time()
    moment = moment or call('time')
    return moment
end
-- Of each verb how many keys and arguments it has, and the script, which finds them after the k-th and the a-th.
local verbs = {
--VERBS--
}
local answers, number, k, a, all = {}, 0, 0, 0, #A
while a < all do
    local verb = verbs[tonumber(A[a + 1])]
    local done, answer = pcall(verb[3], k, a + 1)
    if not done and type(answer) ~= 'table' then
        -- In words, before 7.0 with the place before the code.
        answer = tostring(answer)
        answer = {err = answer:find('^%u+ ') and answer or 'ERR ' .. answer}
    end
    number = number + 1
    answers[number] = answer
    k, a = k + verb[1], a + 1 + verb[2]
end
return answers
