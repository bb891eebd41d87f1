-- Writes a part of a record that stands for many instants. The part that begins where the record
-- does takes its place.
INSERT INTO occurrences AS o (schedule_id, instant, decided_at, task_id, covers_until, covers_at_least, origin, outcome,
    is_watched, reason, detail)
SELECT w.schedule_id, CAST($3 AS bigint), w.decided_at, w.task_id, CAST($4 AS bigint), CAST($5 AS bigint), w.origin,
    w.outcome, w.is_watched, w.reason, w.detail
FROM occurrences AS w WHERE w.schedule_id = $1 AND w.instant = $2
ON CONFLICT (schedule_id, instant) DO UPDATE
SET covers_until = excluded.covers_until, covers_at_least = excluded.covers_at_least
WHERE o.covers_until IS NOT NULL
