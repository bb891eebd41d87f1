-- Tasks may depend on it by now, so it counts as awaited: its next end leaves a note.
INSERT INTO tasks (
    seq, id, lane, state, version, attempts, crashes, cancel_requested, execute_at, due_at, expires_at, worker,
    started_at, progress, checkpoint, trail, awaited, has_turn, ordering, concurrency
)
SELECT
    seq, id, lane, ?2, ?3, ifnull(?4, attempts), ifnull(?5, crashes), 0, execute_at, ifnull(?6, due_at), expires_at,
    worker, started_at, progress, checkpoint, CAST(trail || ?7 AS BLOB), 1, ?8 IS NULL, ?8, ?9
FROM history WHERE seq = ?1
