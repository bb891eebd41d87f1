UPDATE schedules
SET name = $3, version = $4, revision = revision + 1, updated_at = $5, next_run_at = $6, look_at = $7, last_run_at = $8,
    run_count = $9, missed_count = $10, skipped_count = $11, paused_at = $12, pause_reason = $13, definition = $14
WHERE id = $1 AND revision = $2
