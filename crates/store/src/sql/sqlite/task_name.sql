-- The id of a task, by its number.
SELECT id FROM tasks WHERE seq = ?1
UNION ALL
SELECT id FROM history WHERE seq = ?1
