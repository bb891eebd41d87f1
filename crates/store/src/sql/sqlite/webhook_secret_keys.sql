SELECT tenant, secret, created_at, id FROM webhook_secrets
WHERE tenant IN (SELECT value FROM json_each($1))
