-- The position of a task that has a turn. A parked task keeps it.
SELECT state, attempts, has_turn OR parked IS NOT NULL FROM tasks WHERE seq = ?1
