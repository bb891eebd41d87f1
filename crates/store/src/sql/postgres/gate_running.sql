-- How many tasks of each of these queues are QUEUED or RUNNING.
SELECT w.place, sum(c.tasks)::bigint
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (tenant, queue, place)
JOIN lanes AS l ON l.tenant = w.tenant AND l.queue = w.queue
JOIN counts AS c ON c.lane = l.id AND c.state IN (2 /* QUEUED */, 3 /* RUNNING */)
GROUP BY w.place
