SELECT w.id, o.instant, o.origin::bigint, o.task_id, o.detail
FROM unnest($1::uuid[]) WITH ORDINALITY AS w (id, place)
CROSS JOIN LATERAL (
    SELECT b.instant, b.origin, b.task_id, b.detail FROM occurrences AS b
    WHERE b.schedule_id = w.id AND b.outcome = 0
    ORDER BY b.origin, b.instant LIMIT $2
) AS o
ORDER BY w.place, o.origin, o.instant
