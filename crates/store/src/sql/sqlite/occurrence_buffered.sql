SELECT schedule_id, instant, origin, task_id, detail
FROM occurrences WHERE schedule_id = ?1 AND outcome = 0 ORDER BY origin, instant LIMIT ?2
