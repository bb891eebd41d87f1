-- The place of a waiting or blocked task among those of its key.
SELECT t.seq, t.ordering, t.execute_at, t.has_turn
FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id
WHERE i.id = ?1 AND t.state <= 1 /* PENDING */ AND t.ordering IS NOT NULL
