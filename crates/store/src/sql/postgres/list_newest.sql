-- The columns of the listings: id, lane, state, execute_at. Both tables in one statement: a task
-- that moves meanwhile is found in one of them. $2 and $3 choose the tables.
SELECT id, lane, state, execute_at
FROM (
    (SELECT id, lane, state, execute_at FROM tasks WHERE $2 AND id < $1 ORDER BY id DESC LIMIT $4)
    UNION ALL
    (SELECT id, lane, state, execute_at FROM history WHERE $3 AND id < $1 ORDER BY id DESC LIMIT $4)
) AS c
ORDER BY id DESC
LIMIT $4
