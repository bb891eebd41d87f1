-- Waiting tasks of a tenant behind the task number $3 that is due at $2, due before $4, the soonest
-- first, at most $5. Each lane gives its first ones: those with their turn, and those without.
SELECT t.due_at, t.seq, t.id, l.kind, l.queue
FROM lanes AS l CROSS JOIN LATERAL (
    (
        SELECT due_at, seq, id FROM tasks
        WHERE state = 1 /* PENDING */ AND has_turn AND lane = l.id AND (due_at, seq) > ($2, $3) AND due_at < $4
        ORDER BY due_at, seq LIMIT $5
    )
    UNION ALL
    (
        SELECT due_at, seq, id FROM tasks
        WHERE state = 1 /* PENDING */ AND NOT has_turn AND lane = l.id AND (due_at, seq) > ($2, $3) AND due_at < $4
        ORDER BY due_at, seq LIMIT $5
    )
) AS t
WHERE l.tenant = $1
ORDER BY t.due_at, t.seq LIMIT $5
