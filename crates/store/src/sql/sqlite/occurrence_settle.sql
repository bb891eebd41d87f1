-- Records the outcome of an occurrence that waited.
UPDATE occurrences
SET decided_at = ?3, task_id = ?4, covers_until = ?5, covers_at_least = ?6, origin = ?7, outcome = ?8, is_watched = ?9,
    reason = ?10, detail = ?11
WHERE schedule_id = ?1 AND instant = ?2 AND outcome = 0
