-- $1 name, $2 the least token, $3 the largest
UPDATE {locks} SET
  -- with a lock delay it stays closed, under an id that no claim has
  claim_id   = IF(delay > 0, CONCAT(claim_id, X'00'), claim_id),
  expires_at = IF(delay > 0, LEAST(expires_at, {now} + delay), 0)
WHERE name = $1 AND expires_at > {now} AND LENGTH(claim_id) = 16
  AND token BETWEEN $2 AND $3
