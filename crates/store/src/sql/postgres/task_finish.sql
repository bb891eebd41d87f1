-- Finishes live tasks: their rows move to the history. The arrays from $10 on hold what many tasks
-- have in common; `class` is the index there.
WITH gone AS (
    DELETE FROM tasks AS t
    USING unnest(
        $1::uuid[], $2::bigint[], $3::integer[], $4::bytea[], $5::text[], $6::integer[], $7::integer[], $8::bigint[],
        $9::bigint[]
    ) AS w (id, expected_version, class, trail, result, attempts, crashes, judged_until, judged_node)
    WHERE t.id = w.id AND t.id = ANY ($1) AND t.version = w.expected_version AND t.state = ($10::smallint[])[w.class]
        AND (w.judged_until IS NULL OR (t.lease_expires_at = w.judged_until AND t.node IS NOT DISTINCT FROM w.judged_node))
        AND (
            ($14::text[])[w.class] IS NULL
            OR EXISTS (SELECT 1 FROM lanes AS l WHERE l.id = t.lane AND l.tenant = ($14::text[])[w.class])
        )
    RETURNING
        t.id, t.seq, t.lane, w.expected_version + ($12::bigint[])[w.class] AS version, t.execute_at, t.due_at,
        t.expires_at, t.created_at, t.timeout_millis, t.started_at, ($13::bigint[])[w.class] AS completed_at,
        coalesce(w.attempts, t.attempts) AS attempts, coalesce(w.crashes, t.crashes) AS crashes,
        ($11::smallint[])[w.class] AS state,
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
