CREATE TABLE IF NOT EXISTS fencelock_voids (
  claim_id   BLOB    NOT NULL PRIMARY KEY,
  expires_at INTEGER NOT NULL, -- microseconds in the frame of boot_id
  boot_id    TEXT    NOT NULL
) STRICT, WITHOUT ROWID
