SELECT due_at FROM tasks INDEXED BY tasks_waiting
WHERE state = 1 /* PENDING */ AND has_turn = 1 AND lane = ?1 AND due_at >= ?2
ORDER BY due_at, seq
LIMIT 1
