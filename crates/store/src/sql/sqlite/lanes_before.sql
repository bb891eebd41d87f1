-- How many tasks can be claimed of these lanes, each between two places, counted up to a bound. A
-- range is an array: lane, due instant and number of the place before it, and of the place behind
-- it.
SELECT count(*)
FROM (
    SELECT 1
    FROM json_each(?1) AS l CROSS JOIN tasks AS t INDEXED BY tasks_waiting
    WHERE t.state = 1 /* PENDING */ AND t.has_turn = 1 AND t.lane = l.value ->> 0
        AND (t.due_at, t.seq) > (l.value ->> 1, l.value ->> 2) AND (t.due_at, t.seq) < (l.value ->> 3, l.value ->> 4)
    LIMIT ?2
)
