-- Frees as free.lua does, for whom nobody has a queue, with few commands for all of them.
local queues, locks = {}, {}
for i = 1, n do locks[i], queues[i] = K[k + 2 * i - 1], K[k + 2 * i] end
local none = call('exists', unpack(queues)) == 0
local got = call('mget', unpack(locks))
local freed, which, f = {}, {}, 0
for i = 1, n do
    local held, hold = got[i], A[a + i]
    -- Of two requests for one hold the second finds it gone.
    if held and held:find(hold, 1, true) == 1 and #hold > 33 and not freed[locks[i]]
        and (none or call('exists', queues[i]) == 0) then
        f = f + 1
        freed[locks[i]] = true
        locks[f], which[f] = locks[i], i
    end
end
if f == 0 then return end
call('del', unpack(locks, 1, f))
for j = 1, f do answers[number + which[j]] = 1 end
-- Where nobody listens nothing is to be told.
local listen = try('pubsub', 'numsub', unpack(locks, 1, f))
for j = 1, f do
    if listen.err or listen[2 * j] > 0 then try('publish', locks[j], '') end
end
