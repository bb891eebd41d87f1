-- The waiting tasks of an ordering key before a place.
SELECT id FROM tasks INDEXED BY tasks_ordered
WHERE ordering = ?1 AND ordering IS NOT NULL AND state = 1 /* PENDING */ AND (execute_at, seq) < (?2, ?3)
ORDER BY execute_at, seq
LIMIT ?4
