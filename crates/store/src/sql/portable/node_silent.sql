SELECT id FROM nodes WHERE last_seen_at < $1 ORDER BY id
