local killed, why = pcall(kill, KEYS[2], id, ARGV[2])
