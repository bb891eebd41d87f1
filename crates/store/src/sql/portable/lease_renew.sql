UPDATE leases SET expires_at = $5 WHERE name = $1 AND holder = $2 AND term = $3 AND expires_at > $4
