-- The claimable tasks of a lane before a place.
SELECT seq FROM tasks INDEXED BY tasks_waiting
WHERE state = 1 /* PENDING */ AND has_turn = 1 AND lane = ?1 AND (due_at, seq) < (?2, ?3)
ORDER BY due_at, seq
LIMIT ?4
