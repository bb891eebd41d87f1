-- Takes the turn from tasks that have not begun and have not changed since they were read. A task
-- that was claimed meanwhile keeps it, given back or not. ($3 is PENDING: as a constant it would
-- make the planner choose an index of waiting tasks.)
UPDATE tasks AS t SET has_turn = false, parked = NULL
WHERE t.id = ANY ($1)
    AND t.version = ($2::bigint[])[array_position($1::uuid[], t.id)]
    AND t.state = $3 AND t.attempts = 0 AND (t.has_turn OR t.parked)
RETURNING t.id
