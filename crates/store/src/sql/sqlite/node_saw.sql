INSERT INTO nodes (id, name, address, roles, version, skew_millis, first_seen_at, last_seen_at, lease_millis)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name,
    address = excluded.address,
    roles = excluded.roles,
    version = excluded.version,
    skew_millis = excluded.skew_millis,
    first_seen_at = coalesce(nodes.first_seen_at, nodes.last_seen_at),
    last_seen_at = excluded.last_seen_at,
    lease_millis = excluded.lease_millis
