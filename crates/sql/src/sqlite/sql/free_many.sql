-- ?1 holds as JSON: [[name, claim], …], in hexadecimal
UPDATE fencelock_locks AS l SET expires_at = 0
FROM (SELECT unhex(value ->> 0) AS name, unhex(value ->> 1) AS claim_id FROM json_each(?1)) AS w
WHERE l.name = w.name AND l.claim_id = w.claim_id AND l.expires_at <> 0
RETURNING claim_id
