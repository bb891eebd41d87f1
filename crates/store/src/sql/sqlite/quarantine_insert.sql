INSERT OR REPLACE INTO quarantine (
    seq, id, lane, state, version, attempts, crashes, cancel_requested, execute_at, due_at, expires_at, worker, holder,
    node, held_since, lease_expires_at, deadline_at, lease_millis, started_at, progress, checkpoint, trail,
    has_turn, awaited, blockers, ordering, concurrency, parked, found_at, reason
)
SELECT
    seq, id, lane, state, version, attempts, crashes, cancel_requested, execute_at, due_at, expires_at, worker, holder,
    node, held_since, lease_expires_at, deadline_at, lease_millis, started_at, progress, checkpoint, trail,
    has_turn, awaited, blockers, ordering, concurrency, parked, ?2, ?3
FROM tasks WHERE seq = ?1
