SELECT tenant, name, settings, paused_at, paused_by, pause_reason, paused_until, version, change_number
FROM queues WHERE tenant = $1 AND name = ANY($2::text[])
