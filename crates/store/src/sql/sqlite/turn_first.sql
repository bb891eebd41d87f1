-- The first waiting task of a key.
SELECT seq FROM tasks INDEXED BY tasks_ordered
WHERE ordering = ?1 AND ordering IS NOT NULL AND state = 1 /* PENDING */
ORDER BY execute_at, seq
LIMIT 1
