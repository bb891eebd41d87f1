-- VALUES and no SELECT: SQLite keeps a journal for every statement that could insert more than one
-- row, which costs as much as the insert.
INSERT INTO history (
    lane, state, version, attempts, crashes,
    seq, id, execute_at, due_at, expires_at, worker, started_at, progress, checkpoint, trail,
    completed_at, result
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
