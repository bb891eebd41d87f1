SELECT seq, id, lane, state, execute_at FROM history INDEXED BY history_dead
WHERE state = 7 /* DEAD_LETTERED */ AND seq < ?1
ORDER BY seq DESC
