INSERT INTO bodies (
    seq, created_at, payload, callback_url, callback_headers, retry_policy, timeout_millis, metadata, schedule_id,
    idempotency_key, ordering_key, depends_on, on_dependency_failure, concurrency_key, callback_body
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
