-- Counts for queues, and for all queues together, what `counts_add` counts for lanes. The queue is
-- looked up lane by lane: a join might read all lanes.
INSERT INTO queue_counts (tenant, queue, state, slot, tasks)
SELECT coalesce(l.tenant, ''), coalesce(l.queue, ''), c.state, $4::integer, sum(c.tasks)::bigint
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS c (lane, state, tasks)
CROSS JOIN LATERAL (SELECT tenant, queue FROM lanes WHERE id = c.lane LIMIT 1) AS l
GROUP BY GROUPING SETS ((l.tenant, l.queue, c.state), (c.state))
HAVING sum(c.tasks) <> 0
ORDER BY 1, 2, 3
ON CONFLICT (tenant, queue, state, slot) DO UPDATE SET tasks = queue_counts.tasks + excluded.tasks
