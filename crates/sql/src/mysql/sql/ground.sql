INSERT IGNORE INTO {locks} (name, claim_id, token, expires_at, ttl, delay, holder, note, acquired_at) VALUES ('', '', 0, 0, 0, 0, '', NULL, 0)
