-- Frees parts as free.lua does, where no id is to be dead, with few commands for all of them.
local locks, channels, which, freed, f = {}, {}, {}, {}, 0
for i = 1, n do
    local lock, arg = K[k + 2 * i - 1], a + 3 * (i - 1)
    -- Of two requests for one hold the second finds it gone.
    if A[arg + 2] == '0' and not freed[lock] and try('hget', lock, 'id') == A[arg + 1] then
        f = f + 1
        freed[lock], locks[f], channels[f], which[f] = true, lock, A[arg + 3], i
    end
end
if f == 0 then return end
call('del', unpack(locks))
for j = 1, f do answers[number + which[j]] = 1 end
-- Where nobody listens nothing is to be told.
local listen = try('pubsub', 'numsub', unpack(channels))
for j = 1, f do
    if listen.err or listen[2 * j] > 0 then try('publish', channels[j], '') end
end
