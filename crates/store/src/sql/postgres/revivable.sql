-- Locks finished tasks that may be revived: the columns of `revived_child.rs`, and the tenant. A task
-- whose idempotency key belongs to another by now was replaced.
SELECT h.id, h.state, h.version, h.attempts, h.crashes, h.due_at, h.depends_on, h.on_dependency_failure, l.tenant
FROM history AS h JOIN lanes AS l ON l.id = h.lane
WHERE h.id = ANY ($1) AND h.state IN (5 /* CANCELLED */, 6 /* FAILED */)
    AND NOT EXISTS (
        SELECT FROM idempotency AS k
        WHERE k.tenant = l.tenant AND k.key = h.idempotency_key AND k.task_id <> h.id
    )
ORDER BY h.id
FOR UPDATE OF h
