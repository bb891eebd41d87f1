-- The columns of every statement that reads whole tasks are those of `task_row.rs`.
SELECT
    t.id, t.lane, t.state, t.version, t.attempts, t.crashes, t.cancel_requested, t.execute_at, t.due_at, t.expires_at,
    t.worker, t.started_at, t.progress, t.checkpoint, t.trail, b.created_at, b.payload, b.callback_url, b.callback_headers,
    b.retry_policy, b.timeout_millis, b.metadata, b.schedule_id, b.idempotency_key,
    t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis, NULL, NULL,
    b.ordering_key, b.depends_on, b.on_dependency_failure, b.concurrency_key, b.callback_body, t.seq
FROM tasks AS t LEFT JOIN bodies AS b ON b.seq = t.seq
WHERE t.seq = ?1
