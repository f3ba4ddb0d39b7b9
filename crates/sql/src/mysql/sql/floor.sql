-- $1 the largest token that goes
UPDATE {locks} SET token = GREATEST(token, $1) WHERE name = ''
