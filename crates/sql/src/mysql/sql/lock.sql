-- $1 name, $2 claim, $3 smallest token, $4 holder
INSERT INTO {locks} (name, claim_id, token, expires_at, ttl, delay, holder, note, acquired_at)
SELECT $1, $2, GREATEST($3, {now}, COALESCE((SELECT f.token + 1 FROM {locks} AS f WHERE f.name = ''), 0)), 0, 0, 0, $4, NULL, {now}
FROM (SELECT 1 AS one) AS n
-- columns are assigned from the top: what the others look at, last
ON DUPLICATE KEY UPDATE
  token       = IF(expires_at <= {now}, GREATEST(token + 1, VALUES(token)), token),
  claim_id    = IF(expires_at <= {now}, VALUES(claim_id), claim_id),
  ttl         = IF(expires_at <= {now}, 0, ttl),
  delay       = IF(expires_at <= {now}, 0, delay),
  holder      = IF(expires_at <= {now}, VALUES(holder), holder),
  note        = IF(expires_at <= {now}, NULL, note),
  acquired_at = IF(expires_at <= {now}, VALUES(acquired_at), acquired_at),
  expires_at  = IF(expires_at <= {now}, 0, expires_at)
