-- Locks the limits of these queues for this transaction. The fixed order prevents deadlocks.
SELECT g.tenant, g.queue, g.max_concurrency, g.per_second, g.burst, g.tokens, g.refilled_at, g.is_paused, g.paused_until,
    g.max_per_key
FROM unnest($1::text[], $2::text[]) AS w (tenant, queue)
JOIN gates AS g ON g.tenant = w.tenant AND g.queue = w.queue
WHERE g.max_concurrency IS NOT NULL OR g.max_per_key IS NOT NULL OR g.per_second IS NOT NULL OR g.is_paused
ORDER BY g.tenant, g.queue
FOR UPDATE OF g
