-- How a task finished, and the settings of its queue.
SELECT h.state, q.settings
FROM history AS h CROSS JOIN lanes AS l ON l.id = h.lane LEFT JOIN queues AS q ON q.tenant = l.tenant AND q.name = l.queue
WHERE h.seq = ?1
