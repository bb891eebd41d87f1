DELETE FROM occurrences WHERE (schedule_id, instant) IN (
    SELECT schedule_id, instant FROM occurrences WHERE outcome <> 0 AND is_watched = 0 AND decided_at < ?1
    ORDER BY decided_at LIMIT ?2
)
