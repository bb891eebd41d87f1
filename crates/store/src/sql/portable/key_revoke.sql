DELETE FROM api_keys WHERE tenant = $1 AND id = $2
