-- The states of these tasks, live or finished.
SELECT id, state FROM tasks WHERE id = ANY ($1)
UNION ALL
SELECT id, state FROM history WHERE id = ANY ($1)
