-- $1 name
UPDATE {locks} SET expires_at = 0 WHERE name = $1 AND expires_at > {now}
