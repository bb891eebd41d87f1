-- The due tasks of each lane behind a place, first due first, lane by lane in the order given. Rows
-- that another transaction has locked are skipped. The columns are those of `task_row.rs`, then the
-- number of submission, the size of the payload (a large one is not read here), the location of the
-- row, the index of the lane, and whether the task gives way: it is cancelled by SQL and no node has
-- applied that yet; or it has not begun, an earlier one of its key waits, and the resolver has yet
-- to decide. The last column is its concurrency key. Mostly nothing was cancelled by SQL, which is
-- looked up once.
SELECT
    t.id, t.lane, t.state, t.version, t.attempts, t.crashes, t.cancel_requested, t.execute_at, t.due_at, t.expires_at,
    t.worker, t.started_at, t.progress, t.checkpoint, t.trail, t.created_at, CASE WHEN octet_length(t.payload) <= $6 THEN t.payload END, t.callback_url, t.callback_headers,
    t.retry_policy, t.timeout_millis, t.metadata, t.schedule_id, t.idempotency_key,
    t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis, NULL::bigint, NULL::text,
    t.ordering_key, t.depends_on, t.on_dependency_failure, t.concurrency_key, t.callback_body,
    t.seq, octet_length(t.payload), t.place, l.look,
    (SELECT EXISTS (SELECT FROM inbox_cancels)) AND EXISTS (SELECT FROM inbox_cancels AS c WHERE c.task_id = t.id)
    OR CASE WHEN t.ordering IS NOT NULL AND t.attempts = 0
            AND EXISTS (SELECT FROM orders_due AS n WHERE n.ordering = t.ordering)
        THEN EXISTS (
            SELECT FROM tasks AS e
            WHERE e.ordering = t.ordering AND e.ordering IS NOT NULL AND e.state = 1 /* PENDING */
                AND (e.execute_at, e.seq) < (t.execute_at, t.seq)
        )
        ELSE false
    END,
    t.concurrency
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $7::bigint[])
    WITH ORDINALITY AS l (lane, after_due, after_seq, most, due_by, look)
CROSS JOIN LATERAL (
    SELECT *, ctid AS place FROM tasks
    WHERE state = 1 /* PENDING */ AND has_turn AND lane = l.lane AND due_at <= l.due_by AND (due_at, seq) > (l.after_due, l.after_seq)
    ORDER BY due_at, seq
    LIMIT l.most
    FOR UPDATE SKIP LOCKED
) AS t
LIMIT $5
