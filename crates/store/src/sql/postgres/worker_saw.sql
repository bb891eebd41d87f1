-- Whoever asks for nothing has only shown a sign of life.
INSERT INTO workers (tenant, name, queues, kinds, first_seen_at, last_seen_at)
SELECT tenant, name, queues, kinds, first_seen_at, last_seen_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[])
    AS w (tenant, name, queues, kinds, first_seen_at, last_seen_at)
ON CONFLICT (tenant, name) DO UPDATE SET
    queues = CASE WHEN excluded.queues = '[]' AND excluded.kinds = '[]' THEN workers.queues ELSE excluded.queues END,
    kinds = CASE WHEN excluded.queues = '[]' AND excluded.kinds = '[]' THEN workers.kinds ELSE excluded.kinds END,
    last_seen_at = greatest(workers.last_seen_at, excluded.last_seen_at)
