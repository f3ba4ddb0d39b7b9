-- ?1 name, ?2 now, ?3 frame, ?4 the least token, ?5 the largest
UPDATE fencelock_locks SET
  -- with a lock delay it stays closed, under an id that no claim has
  claim_id   = CASE WHEN delay > 0 THEN CAST(claim_id || x'00' AS BLOB) ELSE claim_id END,
  -- what is left on a clock that cannot be read here is at most the ttl, and 1 % for clocks that differ
  expires_at = CASE WHEN delay > 0 THEN ?2 + min(delay, CASE WHEN boot_id = ?3 THEN expires_at - ?2 ELSE ttl + ttl / 100 + 1 END)
                    ELSE 0 END,
  ttl        = CASE WHEN delay > 0 THEN min(delay, ttl) ELSE ttl END,
  boot_id    = CASE WHEN delay > 0 THEN ?3 ELSE boot_id END
WHERE name = ?1 AND expires_at <> 0 AND (boot_id <> ?3 OR expires_at > ?2) AND length(claim_id) = 16
  AND token BETWEEN ?4 AND ?5
RETURNING 1
