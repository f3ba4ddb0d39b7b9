SELECT pid, (extract(epoch FROM clock_timestamp() - backend_start) * 1000000)::bigint
FROM pg_stat_get_activity(pg_backend_pid())
