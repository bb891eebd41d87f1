-- The waiting tasks of a lane behind the number ?3 at ?2, due before ?4, the soonest first.
SELECT due_at, seq, id FROM tasks INDEXED BY tasks_waiting
WHERE state = 1 /* PENDING */ AND has_turn = 1 AND lane = ?1 AND (due_at, seq) > (?2, ?3) AND due_at < ?4
ORDER BY due_at, seq LIMIT ?5
