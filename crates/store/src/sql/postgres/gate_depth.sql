-- The maximum depth of these queues, where there is one, and their number of live tasks.
SELECT w.place, g.max_depth, (
    SELECT coalesce(sum(c.tasks), 0)::bigint FROM queue_counts AS c WHERE c.tenant = w.tenant AND c.queue = w.queue
)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (tenant, queue, place)
JOIN gates AS g ON g.tenant = w.tenant AND g.queue = w.queue
WHERE g.max_depth IS NOT NULL
