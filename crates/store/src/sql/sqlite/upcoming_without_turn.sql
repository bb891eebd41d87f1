-- As `upcoming_with_turn.sql`, for tasks that wait for their turn as well.
SELECT due_at, seq, id FROM tasks INDEXED BY tasks_unclaimable
WHERE (state = 0 /* BLOCKED */ OR (state = 1 /* PENDING */ AND has_turn = 0)) AND state = 1 /* PENDING */
    AND lane = ?1 AND (due_at, seq) > (?2, ?3) AND due_at < ?4
ORDER BY due_at, seq LIMIT ?5
