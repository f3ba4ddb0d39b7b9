-- Rows of those who ask: name, claim, smallest token, end, server ttl, lock delay, holder, note and time of grant of each; the token
-- and the end are those of a new row. Each is as in acquire.sql and insert.sql: a void id among theirs, or a server that takes
-- no writes, makes two names of the first, by which the statement fails. Only MariaDB can do without waiting for a row that another has to
-- itself, and can tell what became of each.
-- Columns are assigned from the top, and each sees what was assigned before it: a negative ttl marks a row that is
-- granted until the last of them.
SET STATEMENT innodb_lock_wait_timeout = 0 FOR INSERT INTO {locks}
  (name, claim_id, token, expires_at, ttl, delay, holder, note, acquired_at)
VALUES {rows}
ON DUPLICATE KEY UPDATE
  -- freed or expired, the id is dead; and when it was taken from us
  ttl         = IF(IF(claim_id = VALUES(claim_id), expires_at > {now},
                      expires_at <= {now} AND claim_id <> CONCAT(VALUES(claim_id), X'00')), -VALUES(ttl), ABS(ttl)),
  token       = IF(ttl < 0 AND expires_at <= {now}, GREATEST(token + 1, $1, {now}), token),
  acquired_at = IF(ttl < 0 AND expires_at <= {now}, {now}, acquired_at),
  delay       = IF(ttl < 0, VALUES(delay), delay),
  holder      = IF(ttl < 0, VALUES(holder), holder),
  note        = IF(ttl < 0, VALUES(note), note),
  claim_id    = IF(ttl < 0, VALUES(claim_id), claim_id),
  -- never back: this statement may be a late copy, after one that gave more
  expires_at  = IF(ttl < 0, GREATEST(expires_at, VALUES(expires_at)), expires_at),
  ttl         = ABS(ttl)
RETURNING name, claim_id, token, expires_at, holder, {now} AS now, 0 AS voided
