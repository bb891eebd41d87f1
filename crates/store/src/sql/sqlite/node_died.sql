INSERT INTO nodes (id, last_seen_at) VALUES (?1, 0)
ON CONFLICT (id) DO UPDATE SET first_seen_at = coalesce(first_seen_at, last_seen_at), last_seen_at = 0
