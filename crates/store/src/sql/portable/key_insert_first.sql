-- Of several at once the unique index lets one pass; one that was made before is seen by its role.
INSERT INTO api_keys (id, tenant, name, role, scope, digest, created_at, expires_at, is_first)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, 1
WHERE NOT EXISTS (SELECT 1 FROM api_keys WHERE role = 'admin' AND (expires_at IS NULL OR expires_at > $9))
ON CONFLICT DO NOTHING
