-- Holds of pull workers have no node and sort first; no node is the least integer, which stands for them here.
SELECT node FROM tasks INDEXED BY tasks_held
WHERE state >= 2 /* QUEUED */ AND node > ?1
ORDER BY node
LIMIT 1
