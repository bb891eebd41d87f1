-- Only for a tenant with a record, and up to a number of keys.
INSERT INTO api_keys (id, tenant, name, role, scope, digest, created_at, expires_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8
WHERE EXISTS (SELECT 1 FROM tenants WHERE name = $2) AND (SELECT COUNT(*) FROM api_keys WHERE tenant = $2) < $9
