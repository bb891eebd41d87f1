SELECT name, weight, limits, version, created_at, updated_at FROM tenants WHERE name > $1 ORDER BY name LIMIT $2
