-- Whether a task is blocked, and by how many of its dependencies.
SELECT state::bigint, blockers::bigint FROM tasks WHERE id = $1
