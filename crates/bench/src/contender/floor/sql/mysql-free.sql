-- $1 name, $2 claim
UPDATE {locks} SET expires_at = 0 WHERE name = $1 AND claim_id = $2 AND expires_at <> 0
