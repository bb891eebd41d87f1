SELECT seq, id, lane, state, execute_at FROM history INDEXED BY history_by_time
WHERE execute_at = ?1 AND seq > ?2
ORDER BY seq
