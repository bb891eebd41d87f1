-- The first waiting task of each key given that has one.
SELECT w.ordering, f.id
FROM unnest($1::uuid[]) AS w (ordering)
CROSS JOIN LATERAL (
    SELECT id FROM tasks
    WHERE ordering = w.ordering AND ordering IS NOT NULL AND state = 1 /* PENDING */
    ORDER BY ordering, execute_at, seq
    LIMIT 1
) AS f
