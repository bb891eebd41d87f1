-- The live tasks of some queues of a tenant, by state.
SELECT l.queue, CAST(c.state AS bigint), CAST(sum(c.tasks) AS bigint)
FROM unnest($2::text[]) AS w (queue)
JOIN lanes AS l ON l.tenant = $1 AND l.queue = w.queue
JOIN counts AS c ON c.lane = l.id
GROUP BY l.queue, c.state
