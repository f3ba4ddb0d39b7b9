-- $1 names, $2 claims, $3 server ttls, $4 tokens: the same claim under another is not the hold that is renewed
WITH w AS MATERIALIZED (
  SELECT * FROM unnest($1, $2, $3, $4) AS w (name, claim_id, ttl, token)
), mine AS MATERIALIZED (
  -- a row that another transaction has to itself must not hold up the others
  SELECT l.name, l.claim_id, l.token, w.ttl
  FROM {locks} AS l JOIN w ON l.name = w.name AND l.claim_id = w.claim_id AND l.token = w.token
  WHERE l.expires_at > {now}
  FOR NO KEY UPDATE OF l SKIP LOCKED
), renewed AS (
  -- never back: a renewal may come after one that gave more
  UPDATE {locks} AS l SET expires_at = greatest(l.expires_at, {now} + mine.ttl), ttl = mine.ttl
  FROM mine
  WHERE l.name = mine.name AND l.claim_id = mine.claim_id AND l.token = mine.token AND l.expires_at > {now}
  RETURNING l.claim_id
)
SELECT w.claim_id, renewed.claim_id IS NOT NULL AS renewed,
  EXISTS (SELECT FROM {locks} AS l
    WHERE l.name = w.name AND l.claim_id = w.claim_id AND l.token = w.token AND l.expires_at > {now}) AS alive
FROM w LEFT JOIN renewed ON renewed.claim_id = w.claim_id
