-- A finished task that may be revived: the columns of `revived_child.rs`. A task whose idempotency
-- key belongs to another by now was replaced.
SELECT h.id, h.state, h.version, h.attempts, h.crashes, h.due_at, b.depends_on, b.on_dependency_failure
FROM history AS h CROSS JOIN bodies AS b ON b.seq = h.seq CROSS JOIN lanes AS l ON l.id = h.lane
WHERE h.seq = ?1 AND h.state IN (5 /* CANCELLED */, 6 /* FAILED */)
    AND NOT EXISTS (
        SELECT 1 FROM idempotency AS k
        WHERE k.tenant = l.tenant AND k.key = b.idempotency_key AND k.task_id <> h.id
    )
