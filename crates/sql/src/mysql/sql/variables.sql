SHOW GLOBAL VARIABLES WHERE variable_name IN ('version', 'innodb_flush_log_at_trx_commit', 'innodb_flush_method',
  'innodb_doublewrite', 'log_bin', 'binlog_format', 'sync_binlog', 'read_only', 'super_read_only', 'wsrep_on', 'group_replication_group_name',
  'group_replication_single_primary_mode', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')
