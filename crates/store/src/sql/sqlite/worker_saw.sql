-- A worker that names no queues and no types has only shown a sign of life.
INSERT INTO workers (tenant, name, queues, kinds, first_seen_at, last_seen_at)
SELECT
    value ->> 'tenant', value ->> 'name', value ->> 'queues', value ->> 'kinds', value ->> 'first_seen_at',
    value ->> 'last_seen_at'
FROM json_each($1)
WHERE true
ON CONFLICT (tenant, name) DO UPDATE SET
    queues = CASE WHEN excluded.queues = '[]' AND excluded.kinds = '[]' THEN queues ELSE excluded.queues END,
    kinds = CASE WHEN excluded.queues = '[]' AND excluded.kinds = '[]' THEN kinds ELSE excluded.kinds END,
    last_seen_at = max(last_seen_at, excluded.last_seen_at)
