SELECT number, owner, term, expires_at FROM partitions ORDER BY number
