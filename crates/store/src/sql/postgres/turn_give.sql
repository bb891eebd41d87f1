-- Gives the turn to waiting tasks ($3 is PENDING, see `turn_take.sql`). They were not late while
-- they waited for it.
UPDATE tasks AS t SET has_turn = true, due_at = greatest(t.due_at, $2)
WHERE t.id = ANY ($1) AND t.state = $3
RETURNING t.id, t.lane, t.due_at
