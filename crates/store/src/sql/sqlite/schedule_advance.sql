UPDATE schedules
SET revision = revision + 1, next_run_at = ?2, look_at = ?3,
    last_run_at = iif(last_run_at IS NULL OR ?4 > last_run_at, coalesce(?4, last_run_at), last_run_at),
    run_count = run_count + ?5, skipped_count = skipped_count + ?6, missed_count = missed_count + ?7,
    version = version + ?8, updated_at = iif(?8, ?11, updated_at), paused_at = iif(?8, ?9, paused_at),
    pause_reason = iif(?8, ?10, pause_reason)
WHERE id = ?1
