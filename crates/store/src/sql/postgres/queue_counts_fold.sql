-- As `counts_fold.sql`, for the counts of queues. Counts of no task are removed.
WITH portion AS (
    SELECT tenant, queue, state, slot FROM queue_counts
    WHERE (tenant, queue, state, slot) > ($1, $2, $3, $4)
    ORDER BY tenant, queue, state, slot
    LIMIT $5
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM queue_counts AS c
    USING portion AS p
    WHERE c.tenant = p.tenant AND c.queue = p.queue AND c.state = p.state AND c.slot = p.slot
        AND (c.slot <> 0 OR c.tasks = 0)
    RETURNING c.tenant, c.queue, c.state, c.tasks
),
merged AS (
    INSERT INTO queue_counts (tenant, queue, state, slot, tasks)
    SELECT tenant, queue, state, 0, sum(tasks)
    FROM gone
    GROUP BY tenant, queue, state
    HAVING sum(tasks) <> 0
    ORDER BY tenant, queue, state
    ON CONFLICT (tenant, queue, state, slot) DO UPDATE SET tasks = queue_counts.tasks + excluded.tasks
)
SELECT tenant, queue, state, slot FROM portion OFFSET $5 - 1
