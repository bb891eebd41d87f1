-- Edits waiting tasks, which have no hold. `sets_*` say whether to set a column that may be set to
-- NULL.
UPDATE tasks AS t SET
    state = w.state,
    version = w.version,
    attempts = coalesce(w.attempts, t.attempts),
    crashes = coalesce(w.crashes, t.crashes),
    due_at = coalesce(w.due_at, t.due_at),
    trail = coalesce(w.kept_trail, t.trail) || w.trail,
    lane = coalesce(w.lane, t.lane),
    execute_at = coalesce(w.execute_at, t.execute_at),
    expires_at = CASE WHEN w.sets_expiry THEN w.expires_at ELSE t.expires_at END,
    payload = coalesce(w.payload, t.payload),
    retry_policy = CASE WHEN w.sets_policy THEN w.retry_policy ELSE t.retry_policy END,
    metadata = CASE WHEN w.sets_metadata THEN w.metadata ELSE t.metadata END,
    callback_url = CASE WHEN w.sets_callback THEN w.callback_url ELSE t.callback_url END,
    callback_headers = CASE WHEN w.sets_callback THEN w.callback_headers ELSE t.callback_headers END,
    callback_body = CASE WHEN w.sets_callback THEN w.callback_body ELSE t.callback_body END,
    timeout_millis = coalesce(w.timeout_millis, t.timeout_millis),
    -- A task with a key waits for its turn. It had its turn if it was parked.
    has_turn = CASE
        WHEN w.sets_ordering THEN w.ordering IS NULL
        WHEN w.concurrency IS NOT NULL THEN t.has_turn OR t.parked IS NOT NULL
        ELSE t.has_turn
    END,
    parked = CASE WHEN NOT w.sets_ordering AND w.concurrency IS NULL THEN t.parked END,
    concurrency = coalesce(w.concurrency, t.concurrency),
    ordering = CASE WHEN w.sets_ordering THEN w.ordering ELSE t.ordering END,
    ordering_key = CASE WHEN w.sets_ordering THEN w.ordering_key ELSE t.ordering_key END
FROM unnest(
    $1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::bigint[], $6::bigint[], $7::smallint[],
    $8::bigint[], $9::integer[], $10::integer[], $11::bytea[], $12::bigint[], $13::bigint[], $14::bigint[],
    $15::boolean[], $16::bigint[], $17::text[], $18::boolean[], $19::text[], $20::boolean[], $21::text[], $22::bytea[],
    $23::boolean[], $24::text[], $25::text[], $26::bigint[], $27::boolean[], $28::uuid[], $29::text[],
    $30::uuid[], $31::text[]
) AS w (
    id, expected_version, from_state, tenant, judged_until, judged_node, state,
    version, attempts, crashes, trail, due_at, lane, execute_at,
    sets_expiry, expires_at, payload, sets_policy, retry_policy, sets_metadata, metadata, kept_trail,
    sets_callback, callback_url, callback_headers, timeout_millis, sets_ordering, ordering, ordering_key,
    concurrency, callback_body
)
WHERE t.id = w.id AND t.id = ANY ($1) AND t.version = w.expected_version AND t.state = w.from_state
    AND (w.judged_until IS NULL OR (t.lease_expires_at = w.judged_until AND t.node IS NOT DISTINCT FROM w.judged_node))
    AND (w.tenant IS NULL OR EXISTS (SELECT 1 FROM lanes AS l WHERE l.id = t.lane AND l.tenant = w.tenant))
RETURNING t.id, t.lane, t.due_at, t.expires_at, t.ordering, NULL::boolean, t.concurrency
