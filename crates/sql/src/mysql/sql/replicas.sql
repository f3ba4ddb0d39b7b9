SELECT
  CAST((SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%') AS SIGNED),
  CAST((SELECT COUNT(*) FROM information_schema.user_privileges WHERE privilege_type IN ('PROCESS', 'SUPER')) AS SIGNED)
