-- Takes the turn from tasks that have not begun. A task that was claimed meanwhile keeps it. ($2 is
-- PENDING: as a constant it would make the planner choose an index of waiting tasks.)
UPDATE tasks AS t SET has_turn = false
WHERE t.id = ANY ($1) AND t.state = $2 AND t.attempts = 0 AND t.has_turn
RETURNING t.id
