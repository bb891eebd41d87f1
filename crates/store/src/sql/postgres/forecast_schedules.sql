-- The schedules that will fire, by name.
SELECT id, name, next_run_at, run_count, definition
FROM schedules WHERE tenant = $1 AND name > $2 AND paused_at IS NULL AND next_run_at IS NOT NULL
ORDER BY name LIMIT $3
