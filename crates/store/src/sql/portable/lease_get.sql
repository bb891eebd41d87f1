SELECT holder, term FROM leases WHERE name = $1 AND expires_at > $2
