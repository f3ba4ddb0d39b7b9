CREATE TABLE IF NOT EXISTS {voids} (
  claim_id   bytea  NOT NULL PRIMARY KEY,
  expires_at bigint NOT NULL -- Unix time in microseconds
)
