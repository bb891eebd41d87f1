-- The columns of a live task that its history row takes over, behind its position.
SELECT
    t.lane, t.state, t.version, t.attempts, t.crashes,
    t.seq, t.id, t.execute_at, t.due_at, t.expires_at, t.worker, t.started_at, t.progress, t.checkpoint, t.trail,
    t.ordering, t.awaited, t.concurrency
FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id
WHERE i.id = ?1
