-- The lanes of tasks, and their concurrency keys.
SELECT id, lane, concurrency_key FROM tasks WHERE id = ANY ($1)
UNION ALL
SELECT id, lane, concurrency_key FROM history WHERE id = ANY ($1)
