-- The position of a task that has the turn of a key, unless its key is another by now. A parked task keeps
-- it.
SELECT state, attempts, has_turn OR parked IS NOT NULL FROM tasks WHERE seq = ?1 AND ordering = ?2
