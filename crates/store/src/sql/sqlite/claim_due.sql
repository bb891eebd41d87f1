-- The columns are those of `task_row.rs`, then the number of the row and its concurrency key. A row without a body is returned too: it would stay due
-- forever otherwise. A task that has not begun is left if an earlier one of its key waits and the
-- resolver has yet to decide.
SELECT
    t.id, t.lane, t.state, t.version, t.attempts, t.crashes, t.cancel_requested, t.execute_at, t.due_at, t.expires_at,
    t.worker, t.started_at, t.progress, t.checkpoint, t.trail, b.created_at, b.payload, b.callback_url, b.callback_headers,
    b.retry_policy, b.timeout_millis, b.metadata, b.schedule_id, b.idempotency_key,
    t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis, NULL, NULL,
    b.ordering_key, b.depends_on, b.on_dependency_failure, b.concurrency_key, b.callback_body, t.seq, t.concurrency
FROM tasks AS t INDEXED BY tasks_waiting LEFT JOIN bodies AS b ON b.seq = t.seq
WHERE t.state = 1 /* PENDING */ AND t.has_turn = 1 AND t.lane = ?1 AND t.due_at BETWEEN ?4 AND ?2
    AND (
        t.ordering IS NULL OR t.attempts > 0
        OR NOT EXISTS (SELECT 1 FROM orders_due AS n INDEXED BY orders_due_by_key WHERE n.ordering = t.ordering)
        OR NOT EXISTS (
            SELECT 1 FROM tasks AS e INDEXED BY tasks_ordered
            WHERE e.ordering = t.ordering AND e.ordering IS NOT NULL AND e.state = 1 /* PENDING */
                AND (e.execute_at, e.seq) < (t.execute_at, t.seq)
        )
    )
ORDER BY t.due_at, t.seq
LIMIT ?3
