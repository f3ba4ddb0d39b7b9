-- ?1 resource
SELECT fence FROM main.fencelock_fences WHERE resource = ?1
