-- Frees parts as free.lua does, with few commands for all of them.
local found = call('mget', unpack(K, k + 1, k + n))
local locks, which, f = {}, {}, 0
for i = 1, n do
    local held = found[i]
    -- Asked for twice it is freed, and both are told.
    if held and held:find(A[a + i], 16, true) == 16 then
        f = f + 1
        locks[f], which[f] = K[k + i], i
    end
end
if f == 0 then return end
call('del', unpack(locks))
for j = 1, f do answers[number + which[j]] = 1 end
-- Where nobody listens nothing is to be told.
local waiting = try('pubsub', 'numsub', WAITING)
if not waiting.err and waiting[2] == 0 then return end
local listen = try('pubsub', 'numsub', unpack(locks))
for j = 1, f do
    if listen.err or listen[2 * j] > 0 then try('publish', locks[j], '') end
end
