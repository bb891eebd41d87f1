-- A parent, live or finished.
SELECT i.seq, ifnull(t.lane, h.lane), ifnull(t.state, h.state)
FROM ids AS i LEFT JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id
    LEFT JOIN history AS h ON h.seq = i.seq AND h.id = i.id
WHERE i.id = ?1 AND ifnull(t.state, h.state) IS NOT NULL
