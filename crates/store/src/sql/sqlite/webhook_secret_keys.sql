SELECT tenant, secret FROM webhook_secrets
WHERE tenant IN (SELECT value FROM json_each($1)) ORDER BY created_at, id
