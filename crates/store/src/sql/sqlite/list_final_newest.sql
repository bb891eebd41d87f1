SELECT seq, id, lane, state, execute_at FROM history WHERE seq < ?1 ORDER BY seq DESC
