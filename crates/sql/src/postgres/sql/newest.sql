-- $1 resource
SELECT f.fence FROM {fences} AS f WHERE f.resource = $1
