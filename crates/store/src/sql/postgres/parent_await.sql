-- Locks live parents in the order given and marks them: their end leaves a note from now on. A task
-- of another tenant than the one that names it is left alone.
UPDATE tasks AS t SET awaited = true
FROM unnest($1::uuid[], $2::text[]) AS w (id, tenant), lanes AS l
WHERE t.id = w.id AND t.id = ANY ($1) AND l.id = t.lane AND l.tenant = w.tenant
RETURNING t.id, l.tenant, t.state, t.lane, t.due_at
