CREATE TABLE IF NOT EXISTS {locks} (
  name        VARBINARY(512) NOT NULL PRIMARY KEY, -- UTF-8, compared byte by byte
  claim_id    VARBINARY(17)  NOT NULL,             -- 16 bytes, random for each acquisition
  token       BIGINT         NOT NULL,             -- the last one granted
  expires_at  BIGINT         NOT NULL,             -- Unix time in microseconds; 0 = freed
  ttl         BIGINT         NOT NULL,             -- microseconds, with the lock delay
  delay       BIGINT         NOT NULL,             -- microseconds for which a forced release keeps it closed
  holder      MEDIUMTEXT     NOT NULL,
  note        MEDIUMTEXT,
  acquired_at BIGINT         NOT NULL              -- Unix time in microseconds
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
