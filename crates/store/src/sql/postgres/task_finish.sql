-- Ends `task_finish_by_id.sql` and `task_finish_by_place.sql`: the rows that they delete go to the
-- history.
    RETURNING
        t.id, t.seq, t.lane, w.expected_version + ($10::bigint[])[w.class] AS version, t.execute_at, t.due_at,
        t.expires_at, t.created_at, t.timeout_millis, t.started_at, ($11::bigint[])[w.class] AS completed_at,
        coalesce(w.attempts, t.attempts) AS attempts, coalesce(w.crashes, t.crashes) AS crashes,
        ($9::smallint[])[w.class] AS state,
        t.worker, t.schedule_id, t.idempotency_key, t.callback_url, t.callback_headers, t.retry_policy,
        t.metadata, t.trail || w.trail AS trail, t.payload, t.progress, t.checkpoint, w.result,
        t.awaited, t.ordering, t.ordering_key, t.depends_on, t.on_dependency_failure, t.concurrency, t.concurrency_key,
        t.callback_body
)
INSERT INTO history (
    id, seq, lane, version, execute_at, due_at,
    expires_at, created_at, timeout_millis, started_at, completed_at,
    attempts, crashes,
    state,
    worker, schedule_id, idempotency_key, callback_url, callback_headers, retry_policy,
    metadata, trail, payload, progress, checkpoint, result,
    awaited, ordering, ordering_key, depends_on, on_dependency_failure, concurrency, concurrency_key,
    callback_body
)
SELECT * FROM gone
RETURNING id, lane, ordering, awaited, due_at, concurrency
