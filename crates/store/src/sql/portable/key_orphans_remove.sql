-- The keys of a tenant that was removed.
DELETE FROM api_keys WHERE tenant = $1 AND NOT EXISTS (SELECT 1 FROM tenants WHERE name = $1)
