-- The states of these tasks, and whether they are dead letters whose queues hold the tasks behind
-- them.
SELECT id, state::bigint, false FROM tasks WHERE id = ANY ($1::text[]::uuid[])
UNION ALL
SELECT h.id, h.state::bigint,
    h.state = 7 /* DEAD_LETTERED */ AND coalesce(q.settings::jsonb ->> 'on_dead_letter' = 'hold', false)
FROM history AS h
JOIN lanes AS l ON l.id = h.lane
LEFT JOIN queues AS q ON q.tenant = l.tenant AND q.name = l.queue
WHERE h.id = ANY ($1::text[]::uuid[])
