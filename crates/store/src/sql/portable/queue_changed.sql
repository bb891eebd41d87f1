-- The queues that changed after a number. From zero on, queues that were removed are left out.
SELECT tenant, name, settings, paused_at, paused_by, pause_reason, paused_until, version, change_number
FROM queues
WHERE change_number > $1 AND ($1 > 0 OR settings <> '{"removed":true}')
