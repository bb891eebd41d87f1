SELECT id, tenant, name, role, scope, digest, created_at, expires_at, last_used_at FROM api_keys WHERE id = $1
