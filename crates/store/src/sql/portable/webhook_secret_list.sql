SELECT id, tenant, created_at, last_digits, secret = $2 FROM webhook_secrets
WHERE tenant = $1
