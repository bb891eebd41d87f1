-- The names of a tenant's queues behind one: queues that ever had tasks, and queues with settings.
-- Removed queues without tasks are left out. Each half has its own limit, or all queues of the
-- tenant would be read.
SELECT name FROM (
    (
        SELECT c.queue AS name FROM queue_counts AS c
        WHERE c.tenant = $1 AND c.queue > $2
        GROUP BY c.tenant, c.queue
        HAVING sum(c.tasks) > 0 OR NOT EXISTS (
            SELECT 1 FROM queues AS q
            WHERE q.tenant = c.tenant AND q.name = c.queue AND q.settings = '{"removed":true}'
        )
        ORDER BY c.queue LIMIT $3
    )
    UNION
    (
        SELECT name FROM queues
        WHERE tenant = $1 AND name > $2 AND settings <> '{"removed":true}'
        ORDER BY name LIMIT $3
    )
) AS named
ORDER BY name LIMIT $3
