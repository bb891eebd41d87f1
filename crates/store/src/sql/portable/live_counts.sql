-- The live tasks of all queues together, by state.
SELECT CAST(state AS bigint), CAST(sum(tasks) AS bigint) FROM queue_counts WHERE tenant = '' AND queue = ''
GROUP BY state
