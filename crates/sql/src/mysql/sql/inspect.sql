-- $1 name
SELECT name, claim_id, token, expires_at, holder, note, acquired_at, {now} AS now
FROM {locks}
WHERE name = $1 AND expires_at > {now} AND LENGTH(claim_id) = 16
