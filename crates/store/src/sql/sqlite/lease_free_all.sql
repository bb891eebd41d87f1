UPDATE leases SET expires_at = 0
