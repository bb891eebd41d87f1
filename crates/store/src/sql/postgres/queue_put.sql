-- The row of the last number stays locked until the commit, so that numbers become visible in their
-- order.
WITH numbered AS (
    UPDATE queue_changes SET last_number = last_number + 1 RETURNING last_number
)
INSERT INTO queues (tenant, name, settings, paused_at, paused_by, pause_reason, paused_until, version, change_number)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, (SELECT last_number FROM numbered))
ON CONFLICT (tenant, name) DO UPDATE SET
    settings = excluded.settings,
    paused_at = excluded.paused_at,
    paused_by = excluded.paused_by,
    pause_reason = excluded.pause_reason,
    paused_until = excluded.paused_until,
    version = excluded.version,
    change_number = excluded.change_number
RETURNING change_number
