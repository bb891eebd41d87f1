-- The names of a tenant's queues behind one: queues that ever had tasks, and queues that were set.
-- Removed queues without tasks are left out. SQLite merges the two in order and stops at the limit.
WITH hidden AS (
    SELECT q.name FROM queues AS q
    WHERE q.tenant = $1 AND q.name > $2 AND q.settings = '{"removed":true}'
        AND NOT EXISTS (
            SELECT 1 FROM queue_counts AS c WHERE c.tenant = q.tenant AND c.queue = q.name AND c.tasks > 0
        )
)
SELECT queue AS name FROM queue_counts WHERE tenant = $1 AND queue > $2 AND queue NOT IN (SELECT name FROM hidden)
UNION
SELECT name FROM queues WHERE tenant = $1 AND name > $2 AND name NOT IN (SELECT name FROM hidden)
ORDER BY name LIMIT $3
