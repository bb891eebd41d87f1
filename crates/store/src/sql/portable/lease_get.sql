SELECT holder, term, expires_at FROM leases WHERE name = $1 AND expires_at > $2
