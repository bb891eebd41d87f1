-- Merges the counts of all shards into shard 0, for a portion behind a place. Safe at any time: a
-- writer inserts its row again. A count that a writer has locked stays. Returns the last place of
-- the portion, if there may be more.
WITH portion AS (
    SELECT lane, state, slot FROM counts
    WHERE (lane, state, slot) > ($1, $2, $3)
    ORDER BY lane, state, slot
    LIMIT $4
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM counts AS c
    USING portion AS p
    WHERE c.lane = p.lane AND c.state = p.state AND c.slot = p.slot AND c.slot <> 0
    RETURNING c.lane, c.state, c.tasks
),
merged AS (
    INSERT INTO counts (lane, state, slot, tasks)
    SELECT lane, state, 0, sum(tasks) FROM gone GROUP BY lane, state ORDER BY lane, state
    ON CONFLICT (lane, state, slot) DO UPDATE SET tasks = counts.tasks + excluded.tasks
)
SELECT lane, state, slot FROM portion OFFSET $4 - 1
