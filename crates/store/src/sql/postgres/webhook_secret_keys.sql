SELECT tenant, secret FROM webhook_secrets
WHERE tenant = ANY ($1) ORDER BY created_at, id
