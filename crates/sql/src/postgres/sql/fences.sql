CREATE TABLE IF NOT EXISTS {fences} (
  resource bytea  NOT NULL PRIMARY KEY, -- UTF-8, compared byte by byte
  fence    bigint NOT NULL              -- the largest token that has entered
)
