-- The writer's transaction is the lock.
SELECT number, owner, term, expires_at FROM partitions ORDER BY number
