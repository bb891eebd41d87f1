-- The first waiting task of each lane that has one, by one seek in the index for a lane, however much waits in it.
WITH RECURSIVE head AS (
    (
        SELECT lane, due_at FROM tasks
        WHERE state = 1 AND lane > $1
        ORDER BY lane, due_at, seq
        LIMIT 1
    )
    UNION ALL
    SELECT n.lane, n.due_at
    FROM head AS h
    CROSS JOIN LATERAL (
        SELECT lane, due_at FROM tasks
        WHERE state = 1 AND lane > h.lane
        ORDER BY lane, due_at, seq
        LIMIT 1
    ) AS n
)
SELECT lane, due_at FROM head WHERE due_at < $2 LIMIT $3
