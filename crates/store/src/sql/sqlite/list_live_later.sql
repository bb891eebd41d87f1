SELECT seq, id, lane, state, execute_at FROM tasks INDEXED BY tasks_by_time
WHERE execute_at > ?1
ORDER BY execute_at, seq
