-- Locks live parents in the order of their ids and marks them: their end leaves a note from now on.
UPDATE tasks AS t SET awaited = true
FROM lanes AS l
WHERE t.id = ANY ($1) AND l.id = t.lane
RETURNING t.id, l.tenant, t.state, t.lane, t.due_at
