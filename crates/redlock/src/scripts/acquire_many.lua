-- Takes parts as acquire.lua does, of locks that are free where the number is accepted, with few commands for all of them.
local found = call('mget', unpack(K, k + 1, k + 3 * n))
local now = time()
local moment = string.format('%014.0f ', now[1] * 1000 + math.floor(now[2] / 1000))
local free, fences, newest, f = {}, {}, {}, 0
for i = 1, n do
    local at, guess = 3 * i, A[a + 3 * i]
    local fence = K[k + at - 1]
    local counter = newest[fence] or found[at - 1]
    -- What is no number ends this here, and each is served by itself.
    if not found[at - 2] and not found[at] and counter and guess ~= '' and counter - guess < 0 then
        f = f + 1
        free[f], fences[2 * f - 1], fences[2 * f], newest[fence] = i, fence, guess, guess
    end
end
if f == 0 then return end
-- First: where permissions end after this, no more than numbers are spent. Of several for one counter the last is the largest.
call('mset', unpack(fences))
for j = 1, f do
    local i = free[j]
    local arg = a + 3 * (i - 1)
    -- Not twice the same one, and not what is no string.
    if call('set', K[k + 3 * i - 2], moment .. A[arg + 1], 'NX', 'PX', A[arg + 2]) then answers[number + i] = 1 end
end
