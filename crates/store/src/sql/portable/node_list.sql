SELECT
    id, name, address, roles, version, skew_millis, coalesce(first_seen_at, last_seen_at), last_seen_at, lease_millis
FROM nodes
