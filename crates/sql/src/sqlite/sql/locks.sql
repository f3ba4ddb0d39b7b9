CREATE TABLE IF NOT EXISTS fencelock_locks (
  name        BLOB    NOT NULL PRIMARY KEY, -- UTF-8, compared byte by byte
  claim_id    BLOB    NOT NULL,             -- 16 bytes
  token       INTEGER NOT NULL,             -- the last one granted
  expires_at  INTEGER NOT NULL,             -- microseconds in the frame of boot_id; 0 = freed
  ttl         INTEGER NOT NULL,             -- microseconds, with the lock delay
  delay       INTEGER NOT NULL,             -- microseconds for which a forced release keeps it closed
  boot_id     TEXT    NOT NULL,             -- whose clock expires_at is on
  holder      TEXT    NOT NULL,
  note        TEXT,
  acquired_at INTEGER NOT NULL              -- Unix time in microseconds, for display only
) STRICT, WITHOUT ROWID
