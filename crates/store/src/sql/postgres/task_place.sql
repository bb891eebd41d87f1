-- Where a task stands in its lane.
SELECT due_at, seq FROM tasks WHERE id = $1
