SELECT taken.token AS taken, n.at AS now, l.claim_id, l.expires_at, l.holder,
  NOT n.alive OR EXISTS (SELECT FROM {voids} AS v WHERE v.claim_id = $2) AS voided,
  false AS unheard
FROM n LEFT JOIN taken ON true LEFT JOIN {locks} AS l ON l.name = $1
