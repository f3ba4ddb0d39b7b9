-- Many requests in one call: each by itself, as if it had come alone and right after another of them.
-- KEYS: those that all requests have in common, then those of each, one after the other.
-- ARGV: for each verb, which it is and how many requests there are of it, then those of its requests.
-- Answers what each is answered; one that fails fails alone.
local K, A, call, try = KEYS, ARGV, redis.call, redis.pcall
local moment
-- While a script runs no time passes.
local function time()
    moment = moment or call('time')
    return moment
end
-- Of each verb how many keys and arguments it has, and the script, which finds them after the k-th and the a-th; and
-- what answers some of n requests together, those for which nothing is out of the common.
local verbs = {
--VERBS--
}
local answers, number, k, a, all = {}, 0, SHARED, 0, #A
while a < all do
    local verb, n = verbs[tonumber(A[a + 1])], tonumber(A[a + 2])
    a = a + 2
    -- What it has not answered is answered below.
    if verb[4] and n > 1 then pcall(verb[4], k, a, n, answers, number) end
    for _ = 1, n do
        number = number + 1
        if answers[number] == nil then
            local done, answer = pcall(verb[3], k, a)
            if not done and type(answer) ~= 'table' then
                -- In words, before 7.0 with the place before the code.
                answer = tostring(answer)
                answer = {err = answer:find('^%u+ ') and answer or 'ERR ' .. answer}
            end
            answers[number] = answer
        end
        k, a = k + verb[1], a + verb[2]
    end
end
return answers
