-- How many tasks can be claimed of these lanes, each between two places, counted up to a bound. A
-- range is an array: lane, due instant and number of the place before it, and of the place behind
-- it.
SELECT count(*)
FROM (
    SELECT 1
    FROM (
        SELECT (r ->> 0)::bigint AS lane, (r ->> 1)::bigint AS after_due, (r ->> 2)::bigint AS after_seq,
            (r ->> 3)::bigint AS before_due, (r ->> 4)::bigint AS before_seq
        FROM json_array_elements($1::text::json) AS ranges (r)
    ) AS l
    CROSS JOIN LATERAL (
        SELECT 1 FROM tasks
        WHERE state = 1 /* PENDING */ AND has_turn AND lane = l.lane
            AND (due_at, seq) > (l.after_due, l.after_seq) AND (due_at, seq) < (l.before_due, l.before_seq)
        ORDER BY due_at, seq
        LIMIT $2
    ) AS t
    LIMIT $2
) AS counted
