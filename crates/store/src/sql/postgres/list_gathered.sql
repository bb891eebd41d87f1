-- The tasks of these lanes in no order, at most $6 of each part; the columns of `list_newest.sql`.
-- $2 to $5 choose the parts. Held tasks have no index by lane, since every claim would write to it:
-- they are few, and none is read if the counts say that these lanes have none.
(
    SELECT id, lane, state, execute_at FROM tasks
    WHERE $2 AND lane = ANY($1::bigint[]) AND state = 1 /* PENDING */ AND has_turn
    LIMIT $6
)
UNION ALL
(
    SELECT id, lane, state, execute_at FROM tasks
    WHERE $3 AND lane = ANY($1) AND (state = 0 /* BLOCKED */ OR (state = 1 /* PENDING */ AND NOT has_turn))
    LIMIT $6
)
UNION ALL
(
    SELECT id, lane, state, execute_at FROM tasks
    WHERE $4 AND state >= 2 /* QUEUED */ AND lane = ANY($1)
        AND EXISTS (SELECT FROM counts AS c WHERE c.lane = ANY($1) AND c.state >= 2 /* QUEUED */ AND c.tasks <> 0)
    LIMIT $6
)
UNION ALL
(
    SELECT id, lane, state, execute_at FROM history
    WHERE $5 AND lane + 0 = ANY($1) -- as its index says
    LIMIT $6
)
