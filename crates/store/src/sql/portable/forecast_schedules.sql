-- The schedules that will fire before $4, by name, and how many of their runs wait (at most 1000), apart from
-- backfills.
SELECT s.id, s.name, s.next_run_at, s.run_count, s.definition, (
    SELECT count(*) FROM occurrences AS o WHERE o.schedule_id = s.id AND o.outcome = 0 AND o.origin < 2
)
FROM schedules AS s WHERE s.tenant = $1 AND s.name > $2 AND s.paused_at IS NULL AND s.next_run_at < $4
ORDER BY s.name LIMIT $3
