SELECT id, tenant, name, version, revision, created_at, updated_at, next_run_at, look_at, last_run_at, run_count, missed_count,
    skipped_count, paused_at, pause_reason, definition
FROM schedules WHERE id = $1 AND tenant = $2
