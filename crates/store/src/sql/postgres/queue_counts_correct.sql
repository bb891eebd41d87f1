-- Adds what the counts of queues lack: a node of a version before them has counted for lanes only.
-- Both change in the same transactions, so one snapshot shows the exact difference.
INSERT INTO queue_counts (tenant, queue, state, slot, tasks)
SELECT tenant, queue, state, 0, sum(tasks)
FROM (
    SELECT coalesce(l.tenant, '') AS tenant, coalesce(l.queue, '') AS queue, c.state, sum(c.tasks) AS tasks
    FROM counts AS c JOIN lanes AS l ON l.id = c.lane
    GROUP BY GROUPING SETS ((l.tenant, l.queue, c.state), (c.state))
    UNION ALL
    SELECT tenant, queue, state, -tasks FROM queue_counts
) AS compared
GROUP BY tenant, queue, state
HAVING sum(tasks) <> 0
ORDER BY tenant, queue, state
ON CONFLICT (tenant, queue, state, slot) DO UPDATE SET tasks = queue_counts.tasks + excluded.tasks
