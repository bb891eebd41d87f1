SELECT t.lease_expires_at, t.node
FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id
WHERE i.id = ?1
