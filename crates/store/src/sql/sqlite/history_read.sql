-- The columns are those of `task_row.rs`.
SELECT
    h.id, h.lane, h.state, h.version, h.attempts, h.crashes, 0, h.execute_at, h.due_at, h.expires_at,
    h.worker, h.started_at, h.progress, h.checkpoint, h.trail, b.created_at, b.payload, b.callback_url, b.callback_headers,
    b.retry_policy, b.timeout_millis, b.metadata, b.schedule_id, b.idempotency_key,
    NULL, NULL, NULL, NULL, NULL, NULL, h.completed_at, h.result,
    b.ordering_key, b.depends_on, b.on_dependency_failure, b.concurrency_key, b.callback_body, h.seq
FROM history AS h LEFT JOIN bodies AS b ON b.seq = h.seq
WHERE h.seq = ?1
