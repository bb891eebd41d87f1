-- How many of those that it depends on a task waits for, if it does.
SELECT state, blockers FROM tasks WHERE id = $1
