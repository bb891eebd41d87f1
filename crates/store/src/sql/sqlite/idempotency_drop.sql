-- Frees the key of a task that was refused after it took the key.
DELETE FROM idempotency WHERE tenant = ?1 AND key = ?2 AND task_id = ?3
