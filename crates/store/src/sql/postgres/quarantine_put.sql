WITH gone AS (
    DELETE FROM tasks AS t USING unnest($1::uuid[], $2::text[]) AS w (bad, reason)
    WHERE t.id = w.bad AND t.id = ANY ($1)
    RETURNING t.*, w.reason
)
INSERT INTO quarantine (
    id, seq, lane, version, execute_at, due_at, expires_at, created_at, timeout_millis, node, held_since, lease_expires_at,
    deadline_at, lease_millis, started_at, attempts, crashes, state, cancel_requested, worker, holder,
    schedule_id, idempotency_key, callback_url, callback_headers, retry_policy, metadata, trail, payload, progress,
    checkpoint, has_turn, awaited, blockers, ordering, ordering_key, depends_on, on_dependency_failure,
    concurrency, concurrency_key, parked, callback_body, found_at, reason
)
SELECT
    id, seq, lane, version, execute_at, due_at, expires_at, created_at, timeout_millis, node, held_since, lease_expires_at,
    deadline_at, lease_millis, started_at, attempts, crashes, state, cancel_requested, worker, holder,
    schedule_id, idempotency_key, callback_url, callback_headers, retry_policy, metadata, trail, payload, progress,
    checkpoint, has_turn, awaited, blockers, ordering, ordering_key, depends_on, on_dependency_failure,
    concurrency, concurrency_key, parked, callback_body, $3, reason
FROM gone
ON CONFLICT (id) DO UPDATE SET found_at = excluded.found_at, reason = excluded.reason
RETURNING id, lane, state, ordering, awaited, reason, due_at, concurrency
