-- Merges the counts of all slots into slot 0. Safe at any time: a writer inserts its row again.
WITH gone AS (
    DELETE FROM queue_counts WHERE slot <> 0 RETURNING tenant, queue, state, tasks
)
INSERT INTO queue_counts (tenant, queue, state, slot, tasks)
SELECT tenant, queue, state, 0, sum(tasks) FROM gone GROUP BY tenant, queue, state ORDER BY tenant, queue, state
ON CONFLICT (tenant, queue, state, slot) DO UPDATE SET tasks = queue_counts.tasks + excluded.tasks
