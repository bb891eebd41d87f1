-- As `counts_fold.sql`, for some lanes. A count that a writer has locked stays.
WITH gone AS (
    DELETE FROM counts AS c
    USING (
        SELECT lane, state, slot FROM counts
        WHERE lane = ANY ($1) AND slot <> 0
        FOR UPDATE SKIP LOCKED
    ) AS f
    WHERE c.lane = ANY ($1) AND c.lane = f.lane AND c.state = f.state AND c.slot = f.slot
    RETURNING c.lane, c.state, c.tasks
)
INSERT INTO counts (lane, state, slot, tasks)
SELECT lane, state, 0, sum(tasks) FROM gone GROUP BY lane, state ORDER BY lane, state
ON CONFLICT (lane, state, slot) DO UPDATE SET tasks = counts.tasks + excluded.tasks
