-- The successor of a key that has not ended.
INSERT INTO api_keys (id, tenant, name, role, scope, digest, created_at, expires_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8
WHERE EXISTS (SELECT 1 FROM api_keys WHERE id = $9 AND tenant = $2 AND (expires_at IS NULL OR expires_at > $10))
