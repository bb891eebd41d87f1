INSERT INTO queues (tenant, name, settings, paused_at, paused_by, pause_reason, paused_until, version, change_number)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, (SELECT coalesce(max(change_number), 0) + 1 FROM queues))
ON CONFLICT (tenant, name) DO UPDATE SET
    settings = excluded.settings,
    paused_at = excluded.paused_at,
    paused_by = excluded.paused_by,
    pause_reason = excluded.pause_reason,
    paused_until = excluded.paused_until,
    version = excluded.version,
    change_number = excluded.change_number
RETURNING change_number
