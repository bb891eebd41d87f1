SELECT count(*) FROM schedules WHERE tenant = $1 AND paused_at IS NULL AND next_run_at < $2
