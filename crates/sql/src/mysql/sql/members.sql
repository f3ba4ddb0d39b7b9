SELECT CAST(COUNT(*) AS SIGNED) FROM performance_schema.replication_group_members
WHERE member_state = 'ONLINE' AND EXISTS (
  SELECT 1 FROM performance_schema.replication_group_members AS me
  WHERE me.member_id = @@global.server_uuid AND me.member_state = 'ONLINE'
)
