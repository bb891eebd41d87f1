SELECT seq FROM tasks INDEXED BY tasks_waiting WHERE state = 1 /* PENDING */ AND has_turn = 1 AND lane = ?1 LIMIT ?2
