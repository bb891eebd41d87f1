-- Purges dead letters. Tasks may have begun to depend on them meanwhile, so that their new end leaves
-- a note.
UPDATE history AS t SET
    state = w.state,
    version = w.version,
    attempts = coalesce(w.attempts, t.attempts),
    crashes = coalesce(w.crashes, t.crashes),
    trail = t.trail || w.trail
FROM unnest(
    $1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::smallint[],
    $6::bigint[], $7::integer[], $8::integer[], $9::bytea[]
) AS w (id, expected_version, from_state, tenant, state, version, attempts, crashes, trail)
WHERE t.id = w.id AND t.id = ANY ($1) AND t.version = w.expected_version AND t.state = w.from_state AND t.state = 7 /* DEAD_LETTERED */
    AND (w.tenant IS NULL OR EXISTS (SELECT 1 FROM lanes AS l WHERE l.id = t.lane AND l.tenant = w.tenant))
RETURNING t.id, t.lane, t.due_at, NULL::bigint, t.ordering, true, NULL::uuid
