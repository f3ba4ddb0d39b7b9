CREATE TABLE IF NOT EXISTS {voids} (
  claim_id   VARBINARY(16) NOT NULL PRIMARY KEY,
  expires_at BIGINT        NOT NULL -- Unix time in microseconds
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
