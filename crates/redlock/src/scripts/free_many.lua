-- Frees parts as free.lua does, with few commands for all of them.
local locks, channels, which, freed, f = {}, {}, {}, {}, 0
for i = 1, n do
    local lock = K[k + 2 * i - 1]
    -- Of two requests for one hold the second finds it gone.
    if not freed[lock] and try('hget', lock, 'id') == A[a + 3 * i - 2] then
        f = f + 1
        freed[lock], locks[f], channels[f], which[f] = true, lock, A[a + 3 * i], i
    end
end
if f == 0 then return end
call('del', unpack(locks))
for j = 1, f do
    local i, dead = which[j], 1
    if A[a + 3 * i - 1] ~= '0' then dead = try('set', K[k + 2 * i], '', 'PX', A[a + 3 * i - 1]) end
    answers[number + i] = type(dead) == 'table' and dead.err and dead or 1
end
-- Where nobody listens nothing is to be told.
local listen = try('pubsub', 'numsub', unpack(channels))
for j = 1, f do
    if listen.err or listen[2 * j] > 0 then try('publish', channels[j], '') end
end
