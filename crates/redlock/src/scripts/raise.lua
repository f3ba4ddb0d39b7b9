-- Raises counters to a least value; makes none, and only where the node's own record is as expected.
-- KEYS: record, then counters.  ARGV: the record as expected, the least value.
-- Answers how many were smaller, or -1 if the record is another.
if redis.call('get', KEYS[1]) ~= ARGV[1] then return -1 end
local raised = 0
for i = 2, #KEYS do
    local counter = redis.call('get', KEYS[i])
    if counter and tonumber(counter) < tonumber(ARGV[2]) then
        redis.call('set', KEYS[i], ARGV[2])
        raised = raised + 1
    end
end
return raised
