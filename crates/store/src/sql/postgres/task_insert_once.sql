-- As `task_insert.sql`, if one of the ids may exist already.
INSERT INTO tasks (
    id, lane, created_at, execute_at, due_at, expires_at, timeout_millis, schedule_id, idempotency_key,
    callback_url, callback_headers, retry_policy, metadata, trail, payload,
    ordering, ordering_key, has_turn, depends_on, on_dependency_failure, blockers, awaited, concurrency, concurrency_key,
    callback_body,
    state, version, attempts, crashes, cancel_requested
)
SELECT
    id, (SELECT l.id FROM lanes AS l WHERE l.id = w.lane),
    created_at, execute_at, due_at, expires_at, timeout_millis, schedule_id, idempotency_key,
    callback_url, callback_headers, retry_policy, metadata, trail, payload,
    ordering, ordering_key, ordering IS NULL, depends_on, on_dependency_failure, blockers, awaited, concurrency, concurrency_key,
    callback_body,
    CASE WHEN blockers IS NULL THEN 1 /* PENDING */ ELSE 0 /* BLOCKED */ END, 1, 0, 0, false
FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::uuid[],
    $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::text[],
    $16::uuid[], $17::text[], $18::bytea[], $19::text[], $20::integer[], $21::boolean[],
    $22::uuid[], $23::text[], $24::text[]
) AS w (
    id, lane, created_at, execute_at, due_at, expires_at, timeout_millis, schedule_id,
    idempotency_key, callback_url, callback_headers, retry_policy, metadata, trail, payload,
    ordering, ordering_key, depends_on, on_dependency_failure, blockers, awaited, concurrency, concurrency_key,
    callback_body
)
ON CONFLICT (id) DO NOTHING
RETURNING id
