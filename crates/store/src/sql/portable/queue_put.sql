INSERT INTO queues (tenant, name, settings, paused_at, paused_by, pause_reason, paused_until, version)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant, name) DO UPDATE SET
    settings = excluded.settings,
    paused_at = excluded.paused_at,
    paused_by = excluded.paused_by,
    pause_reason = excluded.pause_reason,
    paused_until = excluded.paused_until,
    version = excluded.version
