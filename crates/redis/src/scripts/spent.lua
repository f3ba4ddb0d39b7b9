-- An earlier request of this id is still on its way: when this hold is over, that one takes nothing.
if ARGV[4] ~= '0' then
    local killed, why = pcall(kill, KEYS[2], ARGV[1], ARGV[4])
    -- Half a grant is none.
    if not killed then
        redis.call('del', KEYS[3])
        error(why, 0)
    end
end
