DELETE FROM {voids} WHERE expires_at <= {now} LIMIT 1000
