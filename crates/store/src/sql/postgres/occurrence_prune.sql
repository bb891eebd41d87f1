DELETE FROM occurrences AS o
USING (
    SELECT schedule_id, instant FROM occurrences WHERE outcome <> 0 AND NOT is_watched AND decided_at < $1
    ORDER BY decided_at LIMIT $2
) AS over
WHERE o.schedule_id = over.schedule_id AND o.instant = over.instant
