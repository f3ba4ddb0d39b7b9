SELECT l.claim_id FROM {locks} AS l WHERE l.name IN ({names}) AND l.claim_id IN ({claims}) AND l.expires_at > {now}
