-- As `list_newest.sql`. What somebody holds is not in the index of those that wait: there is not much of it, and it is
-- sorted.
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
