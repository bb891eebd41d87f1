-- Gives a key back to the task that had it before one that was refused.
UPDATE idempotency SET task_id = ?4, fingerprint = ?5, created_at = ?6
WHERE tenant = ?1 AND key = ?2 AND task_id = ?3
