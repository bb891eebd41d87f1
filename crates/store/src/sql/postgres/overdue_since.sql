-- As `overdue.sql`, but only holds that ran out after $4 and waiting tasks that expired after $5:
-- earlier ones were taken back and have left dead entries. The nodes that hold tasks are the known
-- ones, those in $2, and $6.
WITH found AS (
    (
        SELECT id FROM tasks
        WHERE state >= 2 /* QUEUED */ AND node IS NULL AND lease_expires_at > $4 AND lease_expires_at <= $1
        ORDER BY lease_expires_at
        LIMIT $3
    )
    UNION ALL
    SELECT t.id
    FROM (SELECT id AS node FROM nodes UNION SELECT unnest($2::bigint[]) UNION SELECT $6::bigint) AS h
    CROSS JOIN LATERAL (
        SELECT id FROM tasks
        WHERE state >= 2 /* QUEUED */ AND node = h.node AND lease_expires_at > $4
            AND lease_expires_at <= CASE WHEN h.node = ANY($2::bigint[]) THEN 9223372036854775807 ELSE $1 END
        ORDER BY lease_expires_at
        LIMIT $3
    ) AS t
    UNION ALL
    (
        SELECT id FROM tasks
        WHERE expires_at IS NOT NULL AND state <= 1 /* PENDING */ AND expires_at > $5 AND expires_at <= $1
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
