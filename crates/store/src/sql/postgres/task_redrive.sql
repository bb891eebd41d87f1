-- Re-drives dead letters, perhaps edited (see `task_edit.sql`). Tasks may have begun to depend on
-- them meanwhile, so that their next end leaves a note.
WITH back AS (
    DELETE FROM history AS t
    USING unnest(
        $1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::smallint[],
        $6::bigint[], $7::integer[], $8::integer[], $9::bytea[], $10::bigint[], $11::bigint[], $12::bigint[],
        $13::boolean[], $14::bigint[], $15::text[], $16::boolean[], $17::text[], $18::boolean[], $19::text[]
    ) AS w (
        id, expected_version, from_state, tenant, state,
        version, attempts, crashes, trail, due_at, lane, execute_at,
        sets_expiry, expires_at, payload, sets_policy, retry_policy, sets_metadata, metadata
    )
    WHERE t.id = w.id AND t.id = ANY ($1) AND t.version = w.expected_version AND t.state = w.from_state AND t.state = 7 /* DEAD_LETTERED */
        AND (w.tenant IS NULL OR EXISTS (SELECT 1 FROM lanes AS l WHERE l.id = t.lane AND l.tenant = w.tenant))
    RETURNING
        t.id, t.seq, coalesce(w.lane, t.lane) AS lane, w.version,
        coalesce(w.execute_at, t.execute_at) AS execute_at, coalesce(w.due_at, t.due_at) AS due_at,
        CASE WHEN w.sets_expiry THEN w.expires_at ELSE t.expires_at END AS expires_at,
        t.created_at, t.timeout_millis, t.started_at,
        coalesce(w.attempts, t.attempts) AS attempts, coalesce(w.crashes, t.crashes) AS crashes, w.state,
        false AS cancel_requested, t.worker, t.schedule_id, t.idempotency_key, t.callback_url,
        t.callback_headers,
        CASE WHEN w.sets_policy THEN w.retry_policy ELSE t.retry_policy END AS retry_policy,
        CASE WHEN w.sets_metadata THEN w.metadata ELSE t.metadata END AS metadata,
        t.trail || w.trail AS trail, coalesce(w.payload, t.payload) AS payload, t.progress, t.checkpoint,
        true AS awaited, t.ordering, t.ordering_key, t.ordering IS NULL AS has_turn, t.depends_on, t.on_dependency_failure,
        t.concurrency, t.concurrency_key, t.callback_body
)
INSERT INTO tasks (
    id, seq, lane, version,
    execute_at, due_at,
    expires_at,
    created_at, timeout_millis, started_at,
    attempts, crashes, state,
    cancel_requested, worker, schedule_id, idempotency_key, callback_url,
    callback_headers,
    retry_policy,
    metadata,
    trail, payload, progress, checkpoint,
    awaited, ordering, ordering_key, has_turn, depends_on, on_dependency_failure,
    concurrency, concurrency_key, callback_body
)
SELECT * FROM back
RETURNING id, lane, due_at, expires_at, ordering, awaited, concurrency
