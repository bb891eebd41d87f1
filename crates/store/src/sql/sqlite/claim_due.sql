-- The columns are those of `task_row.rs`. A row without a body is returned too: it would stay due
-- forever otherwise.
SELECT
    t.id, t.lane, t.state, t.version, t.attempts, t.crashes, t.cancel_requested, t.execute_at, t.due_at, t.expires_at,
    t.worker, t.started_at, t.progress, t.checkpoint, t.trail, b.created_at, b.payload, b.callback_url, b.callback_headers,
    b.retry_policy, b.timeout_millis, b.metadata, b.schedule_id, b.idempotency_key,
    t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis, NULL, NULL,
    b.ordering_key, b.depends_on, b.on_dependency_failure, t.seq
FROM tasks AS t INDEXED BY tasks_waiting LEFT JOIN bodies AS b ON b.seq = t.seq
WHERE t.state = 1 /* PENDING */ AND t.has_turn = 1 AND t.lane = ?1 AND t.due_at BETWEEN ?4 AND ?2
ORDER BY t.due_at, t.seq
LIMIT ?3
