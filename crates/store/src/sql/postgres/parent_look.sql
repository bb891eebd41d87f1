-- Parents, live or finished, without a lock.
SELECT t.id, l.tenant, t.state FROM tasks AS t JOIN lanes AS l ON l.id = t.lane WHERE t.id = ANY ($1)
UNION ALL
SELECT h.id, l.tenant, h.state FROM history AS h JOIN lanes AS l ON l.id = h.lane WHERE h.id = ANY ($1)
