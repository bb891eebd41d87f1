INSERT INTO tasks (
    seq, id, lane, state, version, attempts, crashes, cancel_requested, execute_at, due_at, expires_at, worker,
    started_at, progress, checkpoint, trail
)
SELECT
    seq, id, lane, ?2, ?3, ifnull(?4, attempts), ifnull(?5, crashes), 0, execute_at, ifnull(?6, due_at), expires_at,
    worker, started_at, progress, checkpoint, CAST(trail || ?7 AS BLOB)
FROM history WHERE seq = ?1
