SELECT seq FROM tasks INDEXED BY tasks_expiring
WHERE expires_at IS NOT NULL AND state <= 1 /* PENDING */ AND expires_at <= ?1
ORDER BY expires_at
LIMIT ?2
