INSERT INTO gates (tenant, queue, max_concurrency, per_second, burst, max_depth, is_paused, paused_until, max_per_key)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tenant, queue) DO UPDATE SET
    max_concurrency = excluded.max_concurrency,
    per_second = excluded.per_second,
    burst = excluded.burst,
    tokens = CASE
        WHEN excluded.per_second IS NOT NULL AND gates.tokens IS NOT NULL THEN least(gates.tokens, excluded.burst)
    END,
    max_depth = excluded.max_depth,
    is_paused = excluded.is_paused,
    paused_until = excluded.paused_until,
    max_per_key = excluded.max_per_key
