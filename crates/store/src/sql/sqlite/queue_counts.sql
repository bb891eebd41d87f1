-- The live tasks of some queues of a tenant, by state. (Each lane of a queue has its own row: a sum
-- would sort.)
SELECT l.queue, c.state, c.tasks
FROM json_each($2) AS w
CROSS JOIN lanes AS l ON l.tenant = $1 AND l.queue = w.value
CROSS JOIN counts AS c ON c.lane = l.id
