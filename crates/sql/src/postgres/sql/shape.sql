-- {tables} the tables' names in quotes, as texts
SELECT n.n, a.attname::text, format_type(a.atttypid, a.atttypmod)::text, a.attnotnull, coalesce(i.indkey[0] = a.attnum, false),
  c.relkind = 'r' AND c.relpersistence = 'p'
FROM unnest(ARRAY[{tables}]) WITH ORDINALITY AS n (name, n)
JOIN pg_catalog.pg_class AS c ON c.oid = to_regclass(n.name)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index AS i ON i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate AND i.indnatts = 1
ORDER BY n.n, a.attnum
