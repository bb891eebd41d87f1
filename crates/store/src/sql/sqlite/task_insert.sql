INSERT INTO tasks (
    seq, id, lane, state, version, attempts, crashes, cancel_requested, execute_at, due_at, expires_at, trail,
    has_turn, awaited, blockers, ordering, concurrency
) VALUES (?1, ?2, ?3, ?4, 1, 0, 0, 0, ?5, ?6, ?7, ?8, ?9 IS NULL, ?10, ?11, ?9, ?12)
