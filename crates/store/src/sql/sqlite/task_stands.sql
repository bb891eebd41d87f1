-- The id and the state of the task with a number.
SELECT id, state FROM tasks WHERE seq = ?1
UNION ALL
SELECT id, state FROM history WHERE seq = ?1
