CREATE TABLE IF NOT EXISTS fencelock_fences (
  resource BLOB    NOT NULL PRIMARY KEY, -- UTF-8, compared byte by byte
  fence    INTEGER NOT NULL              -- the largest token that has entered
) STRICT, WITHOUT ROWID
