SELECT o.schedule_id, o.instant, o.task_id, coalesce(t.state, h.state), coalesce(t.cancel_requested, 0)
FROM occurrences AS o
LEFT JOIN ids AS i ON i.id = o.task_id
LEFT JOIN tasks AS t ON t.seq = i.seq
LEFT JOIN history AS h ON h.seq = i.seq
WHERE o.schedule_id = ?1 AND o.is_watched = 1
ORDER BY o.instant LIMIT ?2
