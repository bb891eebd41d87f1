-- Changes tasks that stay live. A task that is asked to stop keeps its hold.
UPDATE tasks AS t SET
    state = w.state,
    version = w.version,
    attempts = coalesce(w.attempts, t.attempts),
    crashes = coalesce(w.crashes, t.crashes),
    cancel_requested = w.asks,
    due_at = coalesce(w.due_at, t.due_at),
    worker = CASE WHEN w.asks THEN t.worker ELSE coalesce(w.worker, t.worker) END,
    holder = CASE WHEN w.asks THEN t.holder ELSE w.holder END,
    node = CASE WHEN w.asks THEN t.node ELSE w.node END,
    held_since = CASE WHEN w.asks THEN t.held_since ELSE w.held_since END,
    lease_expires_at = CASE WHEN w.asks THEN t.lease_expires_at ELSE w.lease_expires_at END,
    deadline_at = CASE WHEN w.asks THEN t.deadline_at ELSE w.deadline_at END,
    lease_millis = CASE WHEN w.asks THEN t.lease_millis ELSE w.lease_millis END,
    started_at = CASE WHEN w.asks THEN t.started_at ELSE coalesce(w.started_at, t.started_at) END,
    trail = coalesce(w.kept_trail, t.trail) || w.trail
FROM unnest(
    $1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::bigint[], $6::bigint[], $7::smallint[],
    $8::bigint[], $9::integer[], $10::integer[], $11::bytea[], $12::boolean[], $13::bigint[], $14::text[], $15::text[],
    $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bytea[]
) AS w (
    id, expected_version, from_state, tenant, judged_until, judged_node, state,
    version, attempts, crashes, trail, asks, due_at, worker, holder,
    node, held_since, lease_expires_at, deadline_at, lease_millis, started_at, kept_trail
)
WHERE t.id = w.id AND t.id = ANY ($1) AND t.version = w.expected_version AND t.state = w.from_state
    AND (w.judged_until IS NULL OR (t.lease_expires_at = w.judged_until AND t.node IS NOT DISTINCT FROM w.judged_node))
    AND (w.tenant IS NULL OR EXISTS (SELECT 1 FROM lanes AS l WHERE l.id = t.lane AND l.tenant = w.tenant))
RETURNING t.id, t.lane, t.due_at, t.expires_at, t.ordering, NULL::boolean, t.concurrency
