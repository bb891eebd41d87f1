-- Lets tasks of a key be claimed again, the first due first. They were not late while they waited.
UPDATE tasks SET has_turn = 1, parked = NULL, due_at = max(due_at, ?3)
WHERE seq IN (
    SELECT seq FROM tasks INDEXED BY tasks_parked
    WHERE parked = 1 AND concurrency = ?1
    ORDER BY due_at, seq
    LIMIT ?2
)
RETURNING lane, due_at
