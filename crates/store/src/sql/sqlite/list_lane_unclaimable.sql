SELECT seq, id, lane, state, execute_at FROM tasks INDEXED BY tasks_unclaimable
WHERE lane = ?1 AND (state = 0 OR (state = 1 AND has_turn = 0)) -- BLOCKED, or PENDING behind others
LIMIT ?2
