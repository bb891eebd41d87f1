SELECT seq, id, lane, state, execute_at FROM tasks INDEXED BY tasks_by_time
WHERE execute_at = ?1 AND seq > ?2
ORDER BY seq
