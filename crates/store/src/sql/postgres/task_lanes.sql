SELECT id, lane FROM tasks WHERE id = ANY ($1)
UNION ALL
SELECT id, lane FROM history WHERE id = ANY ($1)
