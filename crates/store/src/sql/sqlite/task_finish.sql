INSERT INTO history (
    seq, id, lane, state, version, attempts, crashes, execute_at, due_at, expires_at, worker, started_at, completed_at,
    progress, checkpoint, result, trail
)
SELECT
    seq, id, lane, ?2, ?3, ifnull(?4, attempts), ifnull(?5, crashes), execute_at, due_at, expires_at, worker, started_at,
    ?6, progress, checkpoint, ?7, CAST(trail || ?8 AS BLOB)
FROM tasks WHERE seq = ?1
