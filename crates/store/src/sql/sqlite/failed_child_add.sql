INSERT INTO failed_children (parent, child, failed_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING
