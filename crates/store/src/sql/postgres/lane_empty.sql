-- Removes the counts of lanes without tasks, and notes the instant. A count of zero can be removed
-- at any time: a writer inserts its row again, and then the lane was used. One that a writer has
-- locked stays.
WITH gone AS (
    DELETE FROM counts AS c
    USING (
        SELECT lane, state, slot FROM counts
        WHERE lane = ANY ($1) AND tasks = 0
        FOR UPDATE SKIP LOCKED
    ) AS z
    WHERE c.lane = ANY ($1) AND c.lane = z.lane AND c.state = z.state AND c.slot = z.slot
)
UPDATE lanes SET empty_since = $2 WHERE id = ANY ($1)
