-- Moves what is counted under other slots to the first one. Right at any moment: a writer whose row is gone makes it anew.
WITH gone AS (
    DELETE FROM counts WHERE slot <> 0 RETURNING lane, state, tasks
)
INSERT INTO counts (lane, state, slot, tasks)
SELECT lane, state, 0, sum(tasks) FROM gone GROUP BY lane, state ORDER BY lane, state
ON CONFLICT (lane, state, slot) DO UPDATE SET tasks = counts.tasks + excluded.tasks
