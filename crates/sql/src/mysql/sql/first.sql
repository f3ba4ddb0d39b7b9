@fencelock_floor := COALESCE((SELECT d.token + 1 FROM (SELECT f.token FROM {locks} AS f WHERE f.name = '') AS d), 0)
