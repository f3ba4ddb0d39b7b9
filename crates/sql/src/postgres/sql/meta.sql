CREATE TABLE IF NOT EXISTS {meta} (
  key   text   NOT NULL PRIMARY KEY,
  value bigint NOT NULL
)
