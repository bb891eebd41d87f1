-- Records the outcome of occurrences that waited. Returns the records that were written.
UPDATE occurrences AS o
SET decided_at = w.decided_at, task_id = w.task_id, covers_until = w.covers_until, covers_at_least = w.covers_at_least,
    origin = w.origin, outcome = w.outcome, is_watched = w.is_watched, reason = w.reason, detail = w.detail
FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bigint[], $7::smallint[], $8::smallint[],
    $9::boolean[], $10::text[], $11::text[]
) AS w (
    schedule_id, instant, decided_at, task_id, covers_until, covers_at_least, origin, outcome, is_watched, reason, detail
)
WHERE o.schedule_id = w.schedule_id AND o.instant = w.instant AND o.outcome = 0
RETURNING o.schedule_id, o.instant
