INSERT INTO tasks (
    id, lane, created_at, execute_at, due_at, expires_at, timeout_millis, schedule_id, idempotency_key,
    callback_url, callback_headers, retry_policy, metadata, trail, payload,
    state, version, attempts, crashes, cancel_requested
)
SELECT
    id, lane, created_at, execute_at, execute_at, expires_at, timeout_millis, schedule_id, idempotency_key,
    callback_url, callback_headers, retry_policy, metadata, trail, payload,
    1, 1, 0, 0, false
FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::uuid[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::text[]
) AS w (
    id, lane, created_at, execute_at, expires_at, timeout_millis, schedule_id,
    idempotency_key, callback_url, callback_headers, retry_policy, metadata, trail, payload
)
