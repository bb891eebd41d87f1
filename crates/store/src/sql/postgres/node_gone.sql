-- Only if the node does not hold its lock, and it cannot take it again before this transaction ends.
UPDATE nodes SET gone_at = $2
WHERE id = $1 AND gone_at IS NULL AND locked_on = pg_postmaster_start_time() AND pg_try_advisory_xact_lock($1)
