-- Live tasks that others are going to depend on, locked in the order of their ids: their end is told from now on.
UPDATE tasks AS t SET awaited = true
FROM lanes AS l
WHERE t.id = ANY ($1) AND l.id = t.lane
RETURNING t.id, l.tenant, t.state, t.lane, t.due_at
