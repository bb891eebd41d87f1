-- The live tasks of some queues of a tenant, by state.
SELECT c.queue, CAST(c.state AS bigint), CAST(sum(c.tasks) AS bigint)
FROM queue_counts AS c
WHERE c.tenant = $1 AND c.queue = ANY($2::text[])
GROUP BY c.queue, c.state
