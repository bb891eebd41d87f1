SELECT seq, id, lane, state, execute_at FROM history INDEXED BY history_by_time
WHERE execute_at > ?1
ORDER BY execute_at, seq
