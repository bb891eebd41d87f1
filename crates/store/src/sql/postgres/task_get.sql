-- The columns of every statement that reads whole tasks are those of `task_row.rs`. Both tables in
-- one statement: a task that moves meanwhile is found in one of them. No join: PostgreSQL would
-- scan all ids again for each of them.
SELECT
    t.id, t.lane, t.state, t.version, t.attempts, t.crashes, t.cancel_requested, t.execute_at, t.due_at, t.expires_at,
    t.worker, t.started_at, t.progress, t.checkpoint, t.trail, t.created_at, t.payload, t.callback_url, t.callback_headers,
    t.retry_policy, t.timeout_millis, t.metadata, t.schedule_id, t.idempotency_key,
    t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis, NULL::bigint, NULL::text,
    t.ordering_key, t.depends_on, t.on_dependency_failure, t.concurrency_key, t.callback_body
FROM tasks AS t WHERE t.id = ANY ($1)
UNION ALL
SELECT
    h.id, h.lane, h.state, h.version, h.attempts, h.crashes, false, h.execute_at, h.due_at, h.expires_at,
    h.worker, h.started_at, h.progress, h.checkpoint, h.trail, h.created_at, h.payload, h.callback_url, h.callback_headers,
    h.retry_policy, h.timeout_millis, h.metadata, h.schedule_id, h.idempotency_key,
    NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, h.completed_at, h.result,
    h.ordering_key, h.depends_on, h.on_dependency_failure, h.concurrency_key, h.callback_body
FROM history AS h WHERE h.id = ANY ($1)
