INSERT INTO partition_members (node, expires_at) VALUES (?1, ?2)
ON CONFLICT (node) DO UPDATE SET expires_at = excluded.expires_at
