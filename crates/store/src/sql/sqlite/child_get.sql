-- A task that waits for others.
SELECT t.id, t.lane, t.version, t.attempts, t.crashes, t.due_at, t.blockers, t.ordering, b.on_dependency_failure
FROM tasks AS t LEFT JOIN bodies AS b ON b.seq = t.seq
WHERE t.seq = ?1 AND t.state = 0 /* BLOCKED */
