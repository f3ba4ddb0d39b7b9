-- Makes an id dead, by itself: a slot that is being moved serves one key at a time.
-- KEYS: dead.  ARGV: id, and for how many ms.
kill(KEYS[1], ARGV[1], ARGV[2])
return 1
