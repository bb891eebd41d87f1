DELETE FROM idempotency
WHERE tenant = ?1 AND key = ?2 AND created_at < ?3
    AND NOT EXISTS (
        SELECT 1 FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq WHERE i.id = idempotency.task_id
    )
