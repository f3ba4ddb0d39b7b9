-- $1 the table's name in quotes
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)::text, a.attnotnull, coalesce(i.indkey[0] = a.attnum, false),
  c.relkind = 'r' AND c.relpersistence = 'p'
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index AS i ON i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate AND i.indnatts = 1
WHERE c.oid = to_regclass($1)
ORDER BY a.attnum
