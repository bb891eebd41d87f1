-- Gives the turn of each key in $2 to the waiting task in $1 ($4 is PENDING, see `turn_take.sql`),
-- unless its key was edited since it was read. They were not late while they waited for it.
UPDATE tasks AS t SET has_turn = true, due_at = greatest(t.due_at, $3)
WHERE t.id = ANY ($1)
    AND t.ordering = ($2::uuid[])[array_position($1::uuid[], t.id)]
    AND t.state = $4
RETURNING t.id, t.lane, t.due_at
