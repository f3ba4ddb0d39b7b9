-- $1 resource
SELECT fence FROM {fences} WHERE resource = $1 FOR UPDATE
