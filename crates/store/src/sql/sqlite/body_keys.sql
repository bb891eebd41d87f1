-- The keys of a task.
SELECT ordering_key, concurrency_key FROM bodies WHERE seq = ?1
