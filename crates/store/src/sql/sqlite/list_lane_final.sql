SELECT seq, id, lane, state, execute_at FROM history INDEXED BY history_by_lane WHERE lane = ?1 LIMIT ?2
