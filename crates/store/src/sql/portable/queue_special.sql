SELECT tenant, name, settings, paused_at, paused_by, pause_reason, paused_until, version FROM queues
