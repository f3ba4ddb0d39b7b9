-- An earlier request of this id is still on its way: when this hold is over, that one takes nothing.
if ARGV[4] ~= '0' then redis.call('set', KEYS[3], '', 'PX', ARGV[4]) end
