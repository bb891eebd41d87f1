-- The positions of tasks that have a turn.
SELECT id, ordering, state, attempts, has_turn, version FROM tasks WHERE id = ANY ($1)
