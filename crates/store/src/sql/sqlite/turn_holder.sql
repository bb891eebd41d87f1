-- The position of a task that has a turn.
SELECT state, attempts, has_turn FROM tasks WHERE seq = ?1
