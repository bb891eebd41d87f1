-- No session and no node that is gone: one process at a time has the store.
SELECT
    id, name, address, roles, version, skew_millis, coalesce(first_seen_at, last_seen_at), last_seen_at, lease_millis,
    NULL, NULL
FROM nodes
