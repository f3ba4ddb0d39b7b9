-- Gives counters their first values, or raises them; only where the node's own record is as expected.
-- KEYS: record, then counters.  ARGV: the record as expected, then for each counter its least value.
-- Answers how many there were already, or -1 if the record is another.
if redis.call('get', KEYS[1]) ~= ARGV[1] then return -1 end
local there = 0
for i = 2, #KEYS do
    local counter = redis.call('get', KEYS[i])
    if counter then there = there + 1 end
    if not counter or tonumber(counter) < tonumber(ARGV[i]) then redis.call('set', KEYS[i], ARGV[i]) end
end
return there
