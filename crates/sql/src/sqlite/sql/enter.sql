-- ?1 resource, ?2 token
INSERT INTO main.fencelock_fences AS f (resource, fence) VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE f.fence <= excluded.fence
RETURNING fence
