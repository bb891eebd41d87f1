-- Where a task stands among those of its key, and who has the turn. Only the id is asked for: PostgreSQL would go through
-- an index of those that wait, if it could.
SELECT t.state, t.ordering, t.execute_at, t.seq, t.has_turn, o.head, o.held_by
FROM tasks AS t LEFT JOIN orders AS o ON o.id = t.ordering
WHERE t.id = $1
