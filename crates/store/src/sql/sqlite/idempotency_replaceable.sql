-- Whether a key belongs to a cancelled or failed task.
SELECT 1
FROM idempotency AS k CROSS JOIN ids AS i ON i.id = k.task_id
    CROSS JOIN history AS h ON h.seq = i.seq AND h.id = i.id
WHERE k.tenant = ?1 AND k.key = ?2 AND h.state IN (5 /* CANCELLED */, 6 /* FAILED */)
