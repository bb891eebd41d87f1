-- The limit of each key given that tasks wait for, and how many of its places are taken.
SELECT w.concurrency, g.max_per_key, (
    SELECT count(*) FROM (
        SELECT 1 FROM tasks AS t
        WHERE t.concurrency = w.concurrency AND t.concurrency IS NOT NULL AND t.state >= 2 /* QUEUED */
        LIMIT coalesce(g.max_per_key, 0)
    ) AS counted
)
FROM unnest($1::uuid[]) AS w (concurrency)
CROSS JOIN LATERAL (SELECT lane FROM tasks WHERE parked AND concurrency = w.concurrency LIMIT 1) AS p
JOIN lanes AS l ON l.id = p.lane
LEFT JOIN gates AS g ON g.tenant = l.tenant AND g.queue = l.queue
