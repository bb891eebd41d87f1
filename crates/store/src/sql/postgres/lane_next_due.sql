-- One row for each lane given, in that order.
SELECT (
    SELECT due_at FROM tasks
    WHERE state = 1 /* PENDING */ AND has_turn AND lane = l.lane AND (due_at, seq) > (l.after_due, l.after_seq)
    ORDER BY due_at, seq
    LIMIT 1
)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS l (lane, after_due, after_seq)
