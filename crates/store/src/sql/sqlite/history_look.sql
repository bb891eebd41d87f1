SELECT h.seq, h.lane, h.state, h.version, h.due_at, NULL, NULL
FROM ids AS i CROSS JOIN history AS h ON h.seq = i.seq AND h.id = i.id
WHERE i.id = ?1
