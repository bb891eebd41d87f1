DELETE FROM webhook_secrets WHERE tenant = $1 AND id = $2
