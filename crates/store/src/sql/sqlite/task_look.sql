SELECT t.seq, t.lane, t.state, t.version, t.due_at, t.ordering, t.concurrency
FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id
WHERE i.id = ?1
