-- The columns of the listings: seq, id, lane, state, execute_at.
SELECT seq, id, lane, state, execute_at FROM tasks WHERE seq < ?1 ORDER BY seq DESC
