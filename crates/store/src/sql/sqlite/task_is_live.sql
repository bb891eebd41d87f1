SELECT 1 FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id WHERE i.id = ?1
