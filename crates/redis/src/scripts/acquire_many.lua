-- Acquires as acquire.lua does, of locks that are free, with few commands for all of them.
local fence = call('get', K[1])
local now = time()
local micros = now[1] * 1000000 + now[2]
local token = string.format('%.0f', micros)
if #token ~= 16 or micros >= 9007199254740992 or micros <= BASE then return end
-- Decimal numbers without leading zeros. Where there is none there may be what is no number.
if not fence or #fence > 16 or #fence == 16 and fence >= token then return end
-- What is asked for again and again while others hold it spends no numbers.
if call('exists', unpack(K, k + 1, k + n)) == n then return end
-- Mostly no id is dead.
local any = call('exists', K[2]) == 1
call('set', K[1], token)
local middle = ' ' .. token .. ' ' .. string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)) .. ' '
for i = 1, n do
    local arg = a + 3 * i - 3
    local id = A[arg + 1]
    -- Not what is there, be it of this call or no string.
    if not (any and call('zscore', K[2], id))
        and call('set', K[k + i], id .. middle .. A[arg + 3], 'NX', 'PX', A[arg + 2]) then
        answers[number + i] = micros
    end
end
