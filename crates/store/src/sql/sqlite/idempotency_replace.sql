-- Gives the key of a cancelled or failed task to another.
UPDATE idempotency SET task_id = ?3, fingerprint = ?4, created_at = ?5
WHERE tenant = ?1 AND key = ?2
    AND EXISTS (
        SELECT 1 FROM ids AS i CROSS JOIN history AS h ON h.seq = i.seq AND h.id = i.id
        WHERE i.id = idempotency.task_id AND h.state IN (5 /* CANCELLED */, 6 /* FAILED */)
    )
