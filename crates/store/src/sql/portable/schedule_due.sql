SELECT id, tenant, name, version, revision, created_at, updated_at, next_run_at, look_at, last_run_at, run_count, missed_count,
    skipped_count, paused_at, pause_reason, definition
FROM schedules
WHERE look_at IS NOT NULL AND look_at <= $1 AND (look_at, id) > ($2, $3) ORDER BY look_at, id LIMIT $4
