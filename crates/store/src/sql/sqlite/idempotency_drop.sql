-- Frees the key of a task that was not stored after all.
DELETE FROM idempotency WHERE tenant = ?1 AND key = ?2 AND task_id = ?3
