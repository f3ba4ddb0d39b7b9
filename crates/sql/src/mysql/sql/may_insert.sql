IF(CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF') OR EXISTS (SELECT 1 FROM {voids} AS v WHERE v.claim_id IN ({claims})), (SELECT 1 UNION SELECT 2), {name})
