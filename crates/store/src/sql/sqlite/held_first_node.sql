-- Holds of pull workers have no node, and come first.
SELECT node FROM tasks INDEXED BY tasks_held
WHERE lease_expires_at IS NOT NULL
ORDER BY node
LIMIT 1
