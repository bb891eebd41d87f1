-- As `list_newest.sql`. Held tasks are not in the index of waiting ones: they are few, and sorted.
SELECT id, lane, state, execute_at
FROM (
    (
        SELECT id, lane, state, execute_at FROM tasks
        WHERE $3 AND state <= 1 /* PENDING */ AND (execute_at, id) > ($1, $2)
        ORDER BY execute_at, id
        LIMIT $5
    )
    UNION ALL
    (
        SELECT id, lane, state, execute_at FROM tasks
        WHERE $3 AND state >= 2 /* QUEUED */ AND (execute_at, id) > ($1, $2)
        ORDER BY execute_at, id
        LIMIT $5
    )
    UNION ALL
    (
        SELECT id, lane, state, execute_at FROM history
        WHERE $4 AND (execute_at, id) > ($1, $2)
        ORDER BY execute_at, id
        LIMIT $5
    )
) AS c
ORDER BY execute_at, id
LIMIT $5
