-- The place of a task among those of its key, and the task that has the turn. The id alone is the
-- condition: with more PostgreSQL would scan an index of waiting tasks.
SELECT t.state, t.ordering, t.execute_at, t.seq, t.has_turn, o.head, o.held_by
FROM tasks AS t LEFT JOIN orders AS o ON o.id = t.ordering
WHERE t.id = $1
