-- Holds of pull workers have no node and sort first; no node is the least integer, which stands for them here.
SELECT node FROM tasks INDEXED BY tasks_held
WHERE lease_expires_at IS NOT NULL AND node > ?1
ORDER BY node
LIMIT 1
