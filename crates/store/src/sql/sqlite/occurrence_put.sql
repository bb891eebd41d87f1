-- An instant keeps its record, unless it did not run and this is a backfill.
INSERT INTO occurrences AS o (schedule_id, instant, decided_at, task_id, covers_until, covers_at_least, origin, outcome,
    is_watched, reason, detail)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (schedule_id, instant) DO UPDATE
SET decided_at = excluded.decided_at, task_id = excluded.task_id, covers_until = excluded.covers_until,
    covers_at_least = excluded.covers_at_least, origin = excluded.origin, outcome = excluded.outcome,
    is_watched = excluded.is_watched, reason = excluded.reason, detail = excluded.detail
WHERE o.outcome > 1 AND excluded.origin = 2
