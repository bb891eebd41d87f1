-- A blocked task: the columns of `blocked_child.rs`, then its lane and its ordering key.
SELECT t.id, t.version, t.attempts, t.crashes, t.due_at, t.blockers, b.on_dependency_failure, t.lane, t.ordering
FROM tasks AS t LEFT JOIN bodies AS b ON b.seq = t.seq
WHERE t.seq = ?1 AND t.state = 0 /* BLOCKED */
