SELECT id, tenant, name, role, scope, digest, created_at, expires_at, last_used_at
FROM api_keys WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3
