-- The states of these tasks, and whether they are dead letters whose queues hold the tasks behind
-- them.
SELECT t.id, t.state, 0
FROM json_each(?1) AS w CROSS JOIN ids AS i ON i.id = unhex(w.value) CROSS JOIN tasks AS t ON t.seq = i.seq
UNION ALL
SELECT h.id, h.state,
    h.state = 7 /* DEAD_LETTERED */ AND ifnull(json_extract(q.settings, '$.on_dead_letter') = 'hold', 0)
FROM json_each(?1) AS w
CROSS JOIN ids AS i ON i.id = unhex(w.value)
CROSS JOIN history AS h ON h.seq = i.seq
CROSS JOIN lanes AS l ON l.id = h.lane
LEFT JOIN queues AS q ON q.tenant = l.tenant AND q.name = l.queue
