-- The positions of tasks that have a turn.
SELECT id, ordering, state, attempts, has_turn FROM tasks WHERE id = ANY ($1)
