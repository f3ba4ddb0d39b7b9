-- $1 name, $2 claim
SELECT token FROM {locks} WHERE name = $1 AND claim_id = $2 FOR UPDATE
