-- The first waiting task of each lane given that has one.
SELECT l.lane, f.due_at, f.seq
FROM unnest($1::bigint[]) AS l (lane)
CROSS JOIN LATERAL (
    SELECT due_at, seq FROM tasks
    WHERE state = 1 /* PENDING */ AND has_turn AND lane = l.lane
    ORDER BY due_at, seq
    LIMIT 1
) AS f
