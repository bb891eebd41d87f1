-- Holds of pull workers have no node and sort first. The least integer stands for them here: it is
-- the id of no node.
SELECT node FROM tasks INDEXED BY tasks_held
WHERE state >= 2 /* QUEUED */ AND node > ?1
ORDER BY node
LIMIT 1
