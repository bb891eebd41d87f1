SELECT seq, id, lane, state, execute_at FROM tasks INDEXED BY tasks_waiting
WHERE lane = ?1 AND state = 1 /* PENDING */ AND has_turn = 1
LIMIT ?2
