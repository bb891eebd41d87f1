SELECT seq FROM tasks INDEXED BY tasks_held
WHERE state >= 2 /* QUEUED */ AND node IS ?1 AND lease_expires_at <= ?2
ORDER BY lease_expires_at
LIMIT ?3
