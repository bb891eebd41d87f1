INSERT INTO schedules (id, revision, name, version, updated_at, next_run_at, look_at, last_run_at, run_count,
    missed_count, skipped_count, paused_at, pause_reason, definition, tenant, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
ON CONFLICT DO NOTHING
