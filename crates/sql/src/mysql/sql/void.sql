-- $1 claim, $2 for how long
INSERT INTO {voids} (claim_id, expires_at) VALUES ($1, {now} + $2)
ON DUPLICATE KEY UPDATE expires_at = GREATEST(expires_at, VALUES(expires_at))
