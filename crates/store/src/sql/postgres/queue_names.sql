-- The names of a tenant's queues behind one: queues that ever had tasks, and queues with settings.
-- Removed queues without tasks are left out. Each half has its own limit, or all queues of the
-- tenant would be read.
WITH hidden AS (
    SELECT q.name FROM queues AS q
    WHERE q.tenant = $1 AND q.name > $2 AND q.settings = '{"removed":true}'
        AND (
            SELECT coalesce(sum(c.tasks), 0) FROM queue_counts AS c WHERE c.tenant = q.tenant AND c.queue = q.name
        ) = 0
)
SELECT name FROM (
    (
        SELECT DISTINCT queue AS name FROM queue_counts
        WHERE tenant = $1 AND queue > $2 AND queue NOT IN (SELECT name FROM hidden)
        ORDER BY queue LIMIT $3
    )
    UNION
    (
        SELECT name FROM queues
        WHERE tenant = $1 AND name > $2 AND name NOT IN (SELECT name FROM hidden)
        ORDER BY name LIMIT $3
    )
) AS named
ORDER BY name LIMIT $3
