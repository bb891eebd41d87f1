-- Revives finished tasks, which are locked. Tasks may depend on them, so that their next end leaves a
-- note.
WITH back AS (
    DELETE FROM history AS t
    USING unnest(
        $1::uuid[], $2::bigint[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bytea[], $7::bigint[], $8::integer[]
    ) AS w (id, expected_version, from_state, state, version, trail, due_at, blockers)
    WHERE t.id = w.id AND t.id = ANY ($1) AND t.version = w.expected_version AND t.state = w.from_state
    RETURNING
        t.id, t.seq, t.lane, w.version, t.execute_at, coalesce(w.due_at, t.due_at) AS due_at, NULL::bigint AS expires_at,
        t.created_at, t.timeout_millis, t.started_at, t.attempts, t.crashes, w.state, false AS cancel_requested,
        t.worker, t.schedule_id, t.idempotency_key, t.callback_url, t.callback_headers, t.retry_policy, t.metadata,
        t.trail || w.trail AS trail, t.payload, t.progress, t.checkpoint, true AS awaited, t.ordering, t.ordering_key,
        t.ordering IS NULL AS has_turn, t.depends_on, t.on_dependency_failure, nullif(w.blockers, 0) AS blockers,
        t.concurrency, t.concurrency_key, t.callback_body
)
INSERT INTO tasks (
    id, seq, lane, version, execute_at, due_at, expires_at,
    created_at, timeout_millis, started_at, attempts, crashes, state, cancel_requested,
    worker, schedule_id, idempotency_key, callback_url, callback_headers, retry_policy, metadata,
    trail, payload, progress, checkpoint, awaited, ordering, ordering_key,
    has_turn, depends_on, on_dependency_failure, blockers,
    concurrency, concurrency_key, callback_body
)
SELECT * FROM back
RETURNING id, lane, due_at, expires_at, ordering, awaited, concurrency
