CREATE TABLE IF NOT EXISTS {locks} (
  name        bytea   NOT NULL PRIMARY KEY, -- UTF-8, compared byte by byte
  claim_id    bytea   NOT NULL,             -- 16 bytes, random for each acquisition
  token       bigint  NOT NULL,             -- the last one granted
  expires_at  bigint  NOT NULL,             -- Unix time in microseconds; 0 = freed
  ttl         bigint  NOT NULL,             -- microseconds, with the lock delay
  delay       bigint  NOT NULL,             -- microseconds for which a forced release keeps it closed
  waited      boolean NOT NULL,             -- somebody wants to be told of the release
  holder      text    NOT NULL,
  note        text,
  acquired_at bigint  NOT NULL              -- Unix time in microseconds
) WITH (fillfactor = 50)
