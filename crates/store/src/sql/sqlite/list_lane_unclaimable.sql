SELECT seq, id, lane, state, execute_at FROM tasks INDEXED BY tasks_unclaimable
WHERE lane = ?1 AND (state = 0 /* BLOCKED */ OR (state = 1 /* PENDING */ AND has_turn = 0))
LIMIT ?2
