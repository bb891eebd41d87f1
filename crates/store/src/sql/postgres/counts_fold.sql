-- Merges the counts of all shards into shard 0. Safe at any time: a writer inserts its row again.
WITH gone AS (
    DELETE FROM counts WHERE slot <> 0 RETURNING lane, state, tasks
)
INSERT INTO counts (lane, state, slot, tasks)
SELECT lane, state, 0, sum(tasks) FROM gone GROUP BY lane, state ORDER BY lane, state
ON CONFLICT (lane, state, slot) DO UPDATE SET tasks = counts.tasks + excluded.tasks
