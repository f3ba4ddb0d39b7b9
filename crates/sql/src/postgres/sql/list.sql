-- $1 prefix
SELECT name, claim_id, token, expires_at, holder, note, acquired_at, {now} AS now
FROM {locks}
WHERE name >= $1 AND substr(name, 1, octet_length($1)) = $1 AND expires_at > {now} AND octet_length(claim_id) = 16
ORDER BY name
