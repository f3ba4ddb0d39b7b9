-- $1 claim, $2 for how long, $3 the claim as a number
INSERT INTO {voids} AS v (claim_id, expires_at)
SELECT $1, {now} + $2
-- waits for the acquires of this id that are being worked on; one that is about to begin may not see it yet
FROM pg_advisory_xact_lock($3)
ON CONFLICT (claim_id) DO UPDATE SET expires_at = greatest(v.expires_at, excluded.expires_at)
