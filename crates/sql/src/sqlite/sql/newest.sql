-- ?1 resource
SELECT fence FROM fencelock_fences WHERE resource = ?1
