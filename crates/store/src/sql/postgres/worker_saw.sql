-- A worker without queues and types has only shown a sign of life: it keeps those it had.
INSERT INTO workers (tenant, name, queues, kinds, first_seen_at, last_seen_at)
SELECT tenant, name, queues, kinds, first_seen_at, last_seen_at
FROM json_to_recordset(CAST(CAST($1 AS text) AS json))
    AS w (tenant text, name text, queues text, kinds text, first_seen_at bigint, last_seen_at bigint)
ON CONFLICT (tenant, name) DO UPDATE SET
    queues = CASE WHEN excluded.queues = '[]' AND excluded.kinds = '[]' THEN workers.queues ELSE excluded.queues END,
    kinds = CASE WHEN excluded.queues = '[]' AND excluded.kinds = '[]' THEN workers.kinds ELSE excluded.kinds END,
    last_seen_at = greatest(workers.last_seen_at, excluded.last_seen_at)
