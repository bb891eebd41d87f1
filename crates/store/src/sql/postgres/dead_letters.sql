-- How tasks finished, and the settings of their queues.
SELECT h.id, h.state, q.settings
FROM history AS h
JOIN lanes AS l ON l.id = h.lane
LEFT JOIN queues AS q ON q.tenant = l.tenant AND q.name = l.queue
WHERE h.id = ANY ($1)
