-- An earlier request of this id is still on its way: when this hold is over, that one takes nothing.
if ARGV[4] ~= '0' then kill(KEYS[2], ARGV[1], ARGV[4]) end
