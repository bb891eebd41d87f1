-- Lets tasks of these keys be claimed again, the first due first. They were not late while they
-- waited. A task that another transaction has locked leaves a note of its own.
UPDATE tasks AS t SET has_turn = true, parked = NULL, due_at = greatest(t.due_at, $3)
WHERE t.id = ANY (ARRAY(
    SELECT p.id
    FROM unnest($1::uuid[], $2::bigint[]) AS w (concurrency, most)
    CROSS JOIN LATERAL (
        SELECT id FROM tasks
        WHERE parked AND concurrency = w.concurrency
        ORDER BY concurrency, due_at, seq
        LIMIT w.most
        FOR UPDATE SKIP LOCKED
    ) AS p
))
RETURNING t.concurrency, t.lane, t.due_at
