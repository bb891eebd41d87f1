-- Whoever asks for nothing has only shown a sign of life.
INSERT INTO workers (tenant, name, queues, kinds, first_seen_at, last_seen_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (tenant, name) DO UPDATE SET
    queues = CASE WHEN excluded.queues = '[]' AND excluded.kinds = '[]' THEN queues ELSE excluded.queues END,
    kinds = CASE WHEN excluded.queues = '[]' AND excluded.kinds = '[]' THEN kinds ELSE excluded.kinds END,
    last_seen_at = max(last_seen_at, excluded.last_seen_at)
