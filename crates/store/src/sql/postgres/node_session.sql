-- Whether this backend holds the lock of the node at this moment. The registry never says so of a lock that another
-- session of the node has left behind.
UPDATE nodes AS n SET locked_on = held.since
FROM (
    SELECT (SELECT pg_postmaster_start_time() FROM node_locks WHERE node = $1 AND backend = $2) AS since
) AS held
WHERE n.id = $1 AND n.locked_on IS DISTINCT FROM held.since
