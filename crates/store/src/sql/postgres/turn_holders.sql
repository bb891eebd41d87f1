-- The positions of tasks that have a turn. A parked task keeps it.
SELECT id, ordering, state, attempts, has_turn OR parked IS NOT NULL, version FROM tasks WHERE id = ANY ($1)
