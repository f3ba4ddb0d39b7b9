CREATE TABLE IF NOT EXISTS {fences} (
  resource VARBINARY(512) NOT NULL PRIMARY KEY, -- UTF-8, compared byte by byte
  fence    BIGINT         NOT NULL              -- the largest token that has entered
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
