-- Removes a schedule and its waiting occurrences. Watched records are no longer watched, so that
-- they are pruned in time.
WITH gone AS (DELETE FROM schedules WHERE id = $1 AND revision = $2 RETURNING id),
waiting AS (DELETE FROM occurrences AS o USING gone AS g WHERE o.schedule_id = g.id AND o.outcome = 0),
seen AS (UPDATE occurrences AS o SET is_watched = false FROM gone AS g WHERE o.schedule_id = g.id AND o.is_watched)
SELECT id FROM gone
