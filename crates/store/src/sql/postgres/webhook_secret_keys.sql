SELECT tenant, secret, created_at, id FROM webhook_secrets
WHERE tenant = ANY ($1)
