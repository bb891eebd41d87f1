-- The state and the result of a task. An id that leads to another task counts as unknown.
SELECT t.state, NULL FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id WHERE i.id = ?1
UNION ALL
SELECT h.state, h.result FROM ids AS i CROSS JOIN history AS h ON h.seq = i.seq AND h.id = i.id WHERE i.id = ?1
LIMIT 1
