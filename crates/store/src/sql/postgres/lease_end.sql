UPDATE leases SET expires_at = 0 WHERE holder = $1
