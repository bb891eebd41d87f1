-- In the order given, which prevents deadlocks. The columns are those of `task_row.rs`, then the
-- location of the row.
SELECT
    t.id, t.lane, t.state, t.version, t.attempts, t.crashes, t.cancel_requested, t.execute_at, t.due_at, t.expires_at,
    t.worker, t.started_at, t.progress, t.checkpoint, t.trail, t.created_at, t.payload, t.callback_url, t.callback_headers,
    t.retry_policy, t.timeout_millis, t.metadata, t.schedule_id, t.idempotency_key,
    t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis, NULL::bigint, NULL::text,
    t.ordering_key, t.depends_on, t.on_dependency_failure, t.concurrency_key, t.callback_body, t.ctid
FROM unnest($1::uuid[]) AS w (id) JOIN tasks AS t ON t.id = w.id AND t.id = ANY ($1)
FOR UPDATE OF t
