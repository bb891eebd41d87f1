-- Which task has a number, and where it stands.
SELECT id, state FROM tasks WHERE seq = ?1
UNION ALL
SELECT id, state FROM history WHERE seq = ?1
