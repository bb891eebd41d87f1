-- The backend of the session: NULL if it is unknown (the node has no lock, or had it before this server started), zero
-- if it has ended.
SELECT
    n.id, n.name, n.address, n.roles, n.version, n.skew_millis, coalesce(n.first_seen_at, n.last_seen_at),
    n.last_seen_at, n.lease_millis,
    CASE WHEN n.locked_on = pg_postmaster_start_time() THEN coalesce(l.backend, 0) END::bigint,
    n.gone_at
FROM nodes AS n LEFT JOIN node_locks AS l ON l.node = n.id
