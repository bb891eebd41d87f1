-- The place of a task among those of its ordering key, the task that has the turn, and the dead
-- letter that holds the key. There is no condition on the state: with one PostgreSQL would read an
-- index of all waiting tasks.
SELECT t.state::bigint, t.ordering, t.execute_at, t.seq, t.has_turn OR t.parked IS NOT NULL, o.head, o.held_by
FROM tasks AS t LEFT JOIN orders AS o ON o.id = t.ordering
WHERE t.id = $1
