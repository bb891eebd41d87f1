-- An instant that has a record keeps it, except that a backfill replaces one that did not run.
-- Returns the records that were written.
INSERT INTO occurrences AS o (schedule_id, instant, decided_at, task_id, covers_until, covers_at_least, origin, outcome,
    is_watched, reason, detail)
SELECT * FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bigint[], $7::smallint[], $8::smallint[],
    $9::boolean[], $10::text[], $11::text[]
)
ON CONFLICT (schedule_id, instant) DO UPDATE
SET decided_at = excluded.decided_at, task_id = excluded.task_id, covers_until = excluded.covers_until,
    covers_at_least = excluded.covers_at_least, origin = excluded.origin, outcome = excluded.outcome,
    is_watched = excluded.is_watched, reason = excluded.reason, detail = excluded.detail
WHERE o.outcome > 1 AND excluded.origin = 2
RETURNING o.schedule_id, o.instant
