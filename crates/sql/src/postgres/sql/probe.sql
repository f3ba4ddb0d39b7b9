SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
  current_setting('full_page_writes'), pg_is_in_recovery(), current_setting('transaction_read_only'),
  current_setting('synchronous_standby_names'),
  (SELECT count(*) FROM pg_stat_replication),
  (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
  (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active),
  (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) OR pg_has_role(current_user, 'pg_monitor', 'MEMBER')
