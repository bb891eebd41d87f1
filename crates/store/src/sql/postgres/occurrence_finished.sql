UPDATE occurrences AS o SET is_watched = false
FROM unnest($1::uuid[], $2::bigint[]) AS w (schedule_id, instant)
WHERE o.schedule_id = w.schedule_id AND o.instant = w.instant AND o.is_watched
