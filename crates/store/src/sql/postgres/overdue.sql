-- Holds that ran out by $1, holds of the nodes in $2, and waiting tasks that expired by $1. Every
-- part seeks in an index and reads overdue rows only; the nodes that hold tasks are found by one
-- seek each. No code of ours writes a hold without an end: such a row is damaged and would be held
-- forever.
WITH RECURSIVE holder AS (
    (SELECT node FROM tasks WHERE state >= 2 /* QUEUED */ AND node IS NOT NULL ORDER BY node LIMIT 1)
    UNION ALL
    SELECT n.node
    FROM holder AS h
    CROSS JOIN LATERAL (SELECT node FROM tasks WHERE state >= 2 /* QUEUED */ AND node > h.node ORDER BY node LIMIT 1) AS n
),
found AS (
    (SELECT id FROM tasks WHERE state >= 2 /* QUEUED */ AND node IS NULL AND lease_expires_at <= $1 ORDER BY lease_expires_at LIMIT $3)
    UNION ALL
    SELECT t.id
    FROM holder AS h
    CROSS JOIN LATERAL (
        SELECT id FROM tasks
        WHERE state >= 2 /* QUEUED */ AND node = h.node
            AND lease_expires_at <= CASE WHEN h.node = ANY($2::bigint[]) THEN 9223372036854775807 ELSE $1 END
        ORDER BY lease_expires_at
        LIMIT $3
    ) AS t
    UNION ALL
    (SELECT id FROM tasks WHERE state >= 2 /* QUEUED */ AND node IS NULL AND lease_expires_at IS NULL LIMIT $3)
    UNION ALL
    SELECT t.id
    FROM holder AS h
    CROSS JOIN LATERAL (
        SELECT id FROM tasks WHERE state >= 2 /* QUEUED */ AND node = h.node AND lease_expires_at IS NULL LIMIT $3
    ) AS t
    UNION ALL
    (
        SELECT id FROM tasks
        WHERE expires_at IS NOT NULL AND state <= 1 /* PENDING */ AND expires_at <= $1
        ORDER BY expires_at
        LIMIT $3
    )
)
SELECT
    t.id, t.lane, t.state, t.version, t.attempts, t.crashes, t.cancel_requested, t.execute_at, t.due_at, t.expires_at,
    t.worker, t.started_at, t.progress, t.checkpoint, t.trail, t.created_at, t.payload, t.callback_url, t.callback_headers,
    t.retry_policy, t.timeout_millis, t.metadata, t.schedule_id, t.idempotency_key,
    t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis, NULL::bigint, NULL::text,
    t.ordering_key, t.depends_on, t.on_dependency_failure, t.concurrency_key, t.callback_body
FROM (SELECT id FROM found LIMIT $3) AS f CROSS JOIN LATERAL (SELECT * FROM tasks WHERE id = f.id OFFSET 0) AS t
