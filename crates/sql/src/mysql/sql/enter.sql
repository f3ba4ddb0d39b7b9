-- $1 resource, $2 token
INSERT INTO {fences} (resource, fence) VALUES ($1, $2)
ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))
