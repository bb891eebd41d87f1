-- How a task came to rest: whether as a dead letter whose queue holds what waits behind it, and in which state.
SELECT h.state = 7 /* DEAD_LETTERED */ AND ifnull(json_extract(q.settings, '$.on_dead_letter') = 'hold', 0), h.state
FROM history AS h CROSS JOIN lanes AS l ON l.id = h.lane LEFT JOIN queues AS q ON q.tenant = l.tenant AND q.name = l.queue
WHERE h.seq = ?1
