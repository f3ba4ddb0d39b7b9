-- {n} the table's number among those that are asked for, {schema} its schema, {table} its name: written out, since MariaDB
-- opens every table of every schema for what is not compared with a constant.
SELECT CAST({n} AS SIGNED), CAST(c.column_name AS CHAR), CAST(c.data_type AS CHAR),
  CAST(COALESCE(c.character_octet_length, 0) AS SIGNED),
  CAST(c.is_nullable = 'NO' AS SIGNED),
  CAST(c.column_key = 'PRI' AND 1 = (
    SELECT COUNT(*) FROM information_schema.statistics AS s
    WHERE s.table_schema = {schema} AND s.table_name = {table} AND s.index_name = 'PRIMARY' AND s.sub_part IS NULL
  ) AS SIGNED),
  CAST(COALESCE((
    SELECT MIN(t.engine = 'InnoDB') FROM information_schema.tables AS t
    WHERE t.table_schema = {schema} AND t.table_name = {table}
  ), 0) AS SIGNED),
  CAST(c.ordinal_position AS SIGNED) AS place
FROM information_schema.columns AS c
WHERE c.table_schema = {schema} AND c.table_name = {table}
