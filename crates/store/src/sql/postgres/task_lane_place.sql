-- The place of a task in its lane.
SELECT due_at, seq FROM tasks WHERE id = $1
