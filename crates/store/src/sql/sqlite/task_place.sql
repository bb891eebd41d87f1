SELECT id, lane, state FROM tasks WHERE seq = ?1
