-- Finishes live tasks: their rows move to the history. The arrays from $8 to $11, and $14, hold what
-- many tasks have in common; `class` is the index there. `task_finish.sql` continues.
WITH gone AS (
    DELETE FROM tasks AS t
    USING unnest(
        $1::uuid[], $2::bigint[], $3::integer[], $4::bytea[], $5::text[], $6::integer[], $7::integer[], $12::bigint[],
        $13::bigint[]
    ) AS w (id, expected_version, class, trail, result, attempts, crashes, judged_until, judged_node)
    WHERE t.id = w.id AND t.id = ANY ($1) AND t.version = w.expected_version AND t.state = ($8::smallint[])[w.class]
        AND (w.judged_until IS NULL OR (t.lease_expires_at = w.judged_until AND t.node IS NOT DISTINCT FROM w.judged_node))
        AND (
            ($14::text[])[w.class] IS NULL
            OR EXISTS (SELECT 1 FROM lanes AS l WHERE l.id = t.lane AND l.tenant = ($14::text[])[w.class])
        )
