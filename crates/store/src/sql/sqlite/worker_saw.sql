INSERT INTO workers (tenant, name, queues, kinds, first_seen_at, last_seen_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (tenant, name) DO UPDATE SET
    queues = excluded.queues,
    kinds = excluded.kinds,
    last_seen_at = max(last_seen_at, excluded.last_seen_at)
