-- Each limit makes the planner go down the index for every record, whatever its statistics say.
SELECT w.id, o.instant, o.task_id, coalesce(t.state, h.state)::bigint, coalesce(t.cancel_requested, false)
FROM unnest($1::uuid[]) WITH ORDINALITY AS w (id, place)
CROSS JOIN LATERAL (
    SELECT b.instant, b.task_id FROM occurrences AS b
    WHERE b.schedule_id = w.id AND b.is_watched
    ORDER BY b.instant LIMIT $2
) AS o
LEFT JOIN LATERAL (SELECT l.state, l.cancel_requested FROM tasks AS l WHERE l.id = o.task_id LIMIT 1) AS t ON true
LEFT JOIN LATERAL (
    SELECT r.state FROM history AS r WHERE r.id = o.task_id AND t.state IS NULL ORDER BY r.completed_at DESC LIMIT 1
) AS h ON true
ORDER BY w.place, o.instant
