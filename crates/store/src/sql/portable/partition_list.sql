SELECT number, owner, term, expires_at FROM partitions WHERE term > 0 ORDER BY number
