-- Acquires as acquire.lua does, of locks that are free, with few commands for all of them.
local got = call('mget', unpack(K, k + 1, k + 3 * n))
local now = time()
local micros = now[1] * 1000000 + now[2]
local token = string.format('%.0f', micros)
if #token ~= 16 or micros >= 9007199254740992 or micros <= BASE then return end
local middle = ' ' .. token .. ' ' .. string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)) .. ' '
local free, fences, f = {}, {}, 0
for i = 1, n do
    local at = 3 * i
    local fence = got[at - 1]
    -- Decimal numbers without leading zeros. Where there is none there may be what is no number.
    if not got[at - 2] and not got[at] and fence and (#fence < 16 or #fence == 16 and fence < token) then
        f = f + 1
        free[f], fences[2 * f - 1], fences[2 * f] = i, K[k + at - 1], token
    end
end
if f == 0 then return end
call('mset', unpack(fences))
for j = 1, f do
    local i = free[j]
    local arg = a + 3 * (i - 1)
    local hold = A[arg + 1] .. middle .. A[arg + 3]
    -- Not twice the same one, and not what is no string.
    if call('set', K[k + 3 * i - 2], hold, 'NX', 'PX', A[arg + 2]) then answers[number + i] = token end
end
