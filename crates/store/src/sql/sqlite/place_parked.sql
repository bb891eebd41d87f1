-- The lane of a task that waits for a place of a key.
SELECT lane FROM tasks INDEXED BY tasks_parked WHERE parked = 1 AND concurrency = ?1 LIMIT 1
