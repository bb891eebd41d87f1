-- The position of a task that has the turn of a key, unless its key is another by now.
SELECT state, attempts, has_turn FROM tasks WHERE seq = ?1 AND ordering = ?2
