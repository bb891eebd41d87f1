-- The live tasks of some queues of a tenant, by state.
SELECT c.queue, c.state, c.tasks
FROM json_each($2) AS w CROSS JOIN queue_counts AS c ON c.tenant = $1 AND c.queue = w.value
