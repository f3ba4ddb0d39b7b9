-- Takes parts as acquire.lua does, of locks that are free, with few commands for all of them.
local fences, others = {}, {}
for i = 1, n do fences[i], others[2 * i - 1], others[2 * i] = K[k + 3 * i - 1], K[k + 3 * i - 2], K[k + 3 * i] end
local none = call('exists', unpack(others)) == 0
local counters = call('mget', unpack(fences))
local now = time()
local moment = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
local free, before, tokens, taken, newest, sets, f = {}, {}, {}, {}, {}, {}, 0
for i = 1, n do
    local lock, fence, guess = others[2 * i - 1], fences[i], A[a + 6 * i]
    -- Where there is none there may be what is no number.
    local counter = newest[fence] or counters[i]
    local newer = counter and tonumber(counter)
    if newer and not taken[lock] and (none or call('exists', lock, others[2 * i]) == 0) then
        f = f + 1
        taken[lock], free[f], before[f], tokens[f] = true, i, counter, ''
        if guess ~= '' and newer < tonumber(guess) then
            tokens[f], newest[fence] = guess, guess
            sets[#sets + 1] = fence
            sets[#sets + 1] = guess
        end
    end
end
-- First: where permissions end after this, no more than numbers are spent. Of several for one counter the last is the largest.
if #sets > 0 then call('mset', unpack(sets)) end
for j = 1, f do
    local i, token = free[j], tokens[j]
    local lock, arg = others[2 * i - 1], a + 6 * (i - 1)
    if token ~= '' then
        call('hset', lock, 'id', A[arg + 1], 'holder', A[arg + 3], 'note', A[arg + 4], 'delay', A[arg + 5], 'at', moment,
            'token', token)
    else
        call('hset', lock, 'id', A[arg + 1], 'holder', A[arg + 3], 'note', A[arg + 4], 'delay', A[arg + 5], 'at', moment)
    end
    local expires = try('pexpire', lock, A[arg + 2])
    if type(expires) == 'table' then
        try('del', lock)
        answers[number + i] = expires
    else
        answers[number + i] = {1, before[j], token}
    end
end
