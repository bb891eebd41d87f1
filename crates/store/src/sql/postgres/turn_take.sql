-- Takes the turn from tasks that have not begun. One that has been claimed since keeps it. ($2 is PENDING: said here, it
-- would make the planner think of the indexes of what waits.)
UPDATE tasks AS t SET has_turn = false
WHERE t.id = ANY ($1) AND t.state = $2 AND t.attempts = 0 AND t.has_turn
RETURNING t.id
