,
  -- to what is told the token of the hold is added that was seen; a notice alone is a commit that waits for no disk
  CASE WHEN taken IS NULL AND NOT voided AND claim_id <> $2 AND expires_at > now AND NOT unheard
    THEN pg_notify({channel}, {telling}::text || ' ' || token)::text END AS told
