INSERT INTO nodes (id, last_seen_at) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at
