-- Blocked tasks ($2 is BLOCKED, see `turn_take.sql`), in the order of their ids: the columns of
-- `blocked_child.rs`.
SELECT id, version, attempts, crashes, due_at, blockers, on_dependency_failure
FROM tasks
WHERE id = ANY ($1) AND state = $2
FOR UPDATE
