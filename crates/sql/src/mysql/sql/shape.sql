-- $1 schema or NULL, $2 table
SELECT CAST(c.column_name AS CHAR), CAST(c.data_type AS CHAR),
  CAST(COALESCE(c.character_octet_length, 0) AS SIGNED),
  CAST(c.is_nullable = 'NO' AS SIGNED),
  CAST(c.column_key = 'PRI' AND 1 = (
    SELECT COUNT(*) FROM information_schema.statistics AS s
    WHERE s.table_schema = c.table_schema AND s.table_name = c.table_name AND s.index_name = 'PRIMARY' AND s.sub_part IS NULL
  ) AS SIGNED),
  CAST(t.engine = 'InnoDB' AS SIGNED)
FROM information_schema.columns AS c
JOIN information_schema.tables AS t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema = COALESCE($1, DATABASE()) AND c.table_name = $2
ORDER BY c.ordinal_position
