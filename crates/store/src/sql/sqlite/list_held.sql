SELECT seq, id, lane, state, execute_at FROM tasks INDEXED BY tasks_held WHERE state >= 2 /* QUEUED */ LIMIT ?1
