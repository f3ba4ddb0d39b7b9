-- Those who ask, in the order of their names: $1 names, $2 claims, $3 the claims as numbers, $4 server ttls, $5 lock delays,
-- $6 holders, $7 notes, after a byte if there is one; $8 smallest token, $9 lock wait. Each is as in acquire.sql.
WITH n AS MATERIALIZED (
  SELECT {now} AS at, set_config('lock_timeout', $9, true)
), w AS MATERIALIZED (
  -- of each by itself, by its key
  SELECT u.*, n.at, h.claim_id AS held_by, h.expires_at AS held_until, h.holder AS held_as,
    pg_try_advisory_xact_lock_shared(u.number) AS alive,
    (SELECT true FROM {voids} AS v WHERE v.claim_id = u.id) IS NOT NULL AS void
  FROM n CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[])
      WITH ORDINALITY AS u(name, id, number, ttl, delay, holder, note, place)
    LEFT JOIN LATERAL (SELECT l.claim_id, l.expires_at, l.holder FROM {locks} AS l WHERE l.name = u.name LIMIT 1) AS h ON true
), taken AS (
  INSERT INTO {locks} AS l (name, claim_id, token, expires_at, ttl, delay, waited, holder, note, acquired_at)
  SELECT w.name, w.id,
    greatest($8, w.at, coalesce((SELECT f.token + 1 FROM {locks} AS f WHERE f.name = ''::bytea), 0)),
    w.at + w.ttl, w.ttl, w.delay, false, convert_from(w.holder, 'UTF8'),
    CASE WHEN w.note <> ''::bytea THEN convert_from(substr(w.note, 2), 'UTF8') END, w.at
  FROM w
  WHERE w.alive AND NOT w.void
    -- a lock that is held is left alone, so that contention writes nothing
    AND (w.held_by IS NULL OR w.held_by = w.id OR w.held_until <= w.at)
  ORDER BY w.place
  ON CONFLICT (name) DO UPDATE SET
    token       = CASE WHEN l.claim_id = excluded.claim_id THEN l.token ELSE greatest(l.token + 1, excluded.token) END,
    acquired_at = CASE WHEN l.claim_id = excluded.claim_id THEN l.acquired_at ELSE excluded.acquired_at END,
    expires_at  = CASE WHEN l.claim_id = excluded.claim_id THEN greatest(l.expires_at, excluded.expires_at)
                       ELSE excluded.expires_at END,
    waited      = l.claim_id = excluded.claim_id AND l.waited,
    claim_id    = excluded.claim_id,
    ttl         = excluded.ttl,
    delay       = excluded.delay,
    holder      = excluded.holder,
    note        = excluded.note
  WHERE CASE
    WHEN l.claim_id = excluded.claim_id THEN l.expires_at > {now}
    ELSE l.expires_at <= {now} AND l.claim_id <> excluded.claim_id || '\x00'::bytea
  END
  RETURNING l.claim_id AS id, l.token
)
-- those who took it, and those who could not; whoever is in neither met somebody who was quicker
SELECT taken.id, taken.token AS taken, NULL::bigint AS now, NULL::bytea AS claim_id, NULL::bigint AS expires_at,
  NULL::text AS holder, false AS voided, false AS unheard
FROM taken
UNION ALL
SELECT w.id, NULL, w.at, w.held_by, w.held_until, w.held_as, NOT w.alive OR w.void, false
FROM w
WHERE NOT w.alive OR w.void OR (w.held_by <> w.id AND w.held_until > w.at)
