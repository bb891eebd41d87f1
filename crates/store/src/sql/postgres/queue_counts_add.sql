-- Counts for the queues what `counts_add` counts for their lanes. The queue is looked up lane by
-- lane: a join might read all lanes.
INSERT INTO queue_counts (tenant, queue, state, slot, tasks)
SELECT l.tenant, l.queue, c.state, $4::integer, sum(c.tasks)::bigint
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS c (lane, state, tasks)
CROSS JOIN LATERAL (SELECT tenant, queue FROM lanes WHERE id = c.lane LIMIT 1) AS l
GROUP BY l.tenant, l.queue, c.state
ORDER BY l.tenant, l.queue, c.state
ON CONFLICT (tenant, queue, state, slot) DO UPDATE SET tasks = queue_counts.tasks + excluded.tasks
