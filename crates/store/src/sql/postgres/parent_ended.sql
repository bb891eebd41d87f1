-- Finished parents; a dead letter stays one until this transaction is committed.
SELECT h.id, l.tenant, h.state
FROM history AS h JOIN lanes AS l ON l.id = h.lane
WHERE h.id = ANY ($1)
FOR SHARE OF h
