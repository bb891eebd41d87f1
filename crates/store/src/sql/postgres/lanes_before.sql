-- How many tasks of these lanes can be claimed between two places, counted up to a bound.
SELECT count(*)
FROM (
    SELECT 1
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS l (lane, after_due, after_seq, before_due, before_seq)
    CROSS JOIN LATERAL (
        SELECT 1 FROM tasks
        WHERE state = 1 /* PENDING */ AND has_turn AND lane = l.lane
            AND (due_at, seq) > (l.after_due, l.after_seq) AND (due_at, seq) < (l.before_due, l.before_seq)
        ORDER BY due_at, seq
        LIMIT $6
    ) AS t
    LIMIT $6
) AS counted
