-- How many tasks of each of these queues are QUEUED or RUNNING.
SELECT w.place, sum(c.tasks)::bigint
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (tenant, queue, place)
JOIN queue_counts AS c ON c.tenant = w.tenant AND c.queue = w.queue AND c.state IN (2 /* QUEUED */, 3 /* RUNNING */)
GROUP BY w.place
