SELECT t.lease_expires_at, t.node
FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq
WHERE i.id = ?1
