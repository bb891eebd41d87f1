INSERT OR REPLACE INTO queues (tenant, name, settings, paused_at, paused_by, pause_reason, paused_until, version)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
