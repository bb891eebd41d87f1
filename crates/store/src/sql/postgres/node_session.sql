-- Whether this backend holds the lock of the node at this moment. The registry never says so of a lock that another
-- session of the node has left behind. A node that says so is not gone.
UPDATE nodes AS n SET locked_on = held.since, gone_at = NULL
FROM (
    SELECT (SELECT pg_postmaster_start_time() FROM node_locks WHERE node = $1 AND backend = $2) AS since
) AS held
WHERE n.id = $1 AND (n.locked_on IS DISTINCT FROM held.since OR n.gone_at IS NOT NULL)
