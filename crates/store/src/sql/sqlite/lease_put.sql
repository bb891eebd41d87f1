INSERT INTO leases (name, holder, term, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, term = excluded.term, expires_at = excluded.expires_at
