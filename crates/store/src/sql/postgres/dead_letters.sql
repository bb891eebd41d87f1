-- How these came to rest: whether as dead letters whose queues hold what waits behind them, and in which states.
SELECT h.id, h.state = 7 /* DEAD_LETTERED */ AND coalesce(q.settings::jsonb ->> 'on_dead_letter' = 'hold', false), h.state
FROM history AS h
JOIN lanes AS l ON l.id = h.lane
LEFT JOIN queues AS q ON q.tenant = l.tenant AND q.name = l.queue
WHERE h.id = ANY ($1)
