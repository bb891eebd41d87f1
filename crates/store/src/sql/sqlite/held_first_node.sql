-- Holds of pull workers have no node and come first.
SELECT node FROM tasks INDEXED BY tasks_held
WHERE state >= 2 /* QUEUED */
ORDER BY node
LIMIT 1
