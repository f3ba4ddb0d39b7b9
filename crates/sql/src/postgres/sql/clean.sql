DELETE FROM {voids} WHERE expires_at <= {now}
