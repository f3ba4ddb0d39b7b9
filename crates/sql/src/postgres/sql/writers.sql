-- Transactions under way that write to the lock table, or are about to, and whether
-- they are an engine's: whoever does takes this lock on it before the moment from
-- which it sees what others did.
SELECT l.virtualtransaction, coalesce(a.application_name = 'fencelock', false)
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.relation = to_regclass('{locks}') AND l.mode = 'RowExclusiveLock'
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND l.granted AND l.pid <> pg_backend_pid()
