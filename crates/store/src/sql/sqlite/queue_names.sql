-- The names of a tenant's queues behind one: queues that ever had tasks, and queues that are set.
-- Removed queues without tasks are left out. SQLite merges the two in order and stops at the limit.
SELECT c.queue AS name FROM queue_counts AS c
WHERE c.tenant = $1 AND c.queue > $2
    AND (c.tasks > 0 OR NOT EXISTS (
        SELECT 1 FROM queues AS q WHERE q.tenant = c.tenant AND q.name = c.queue AND q.settings = '{"removed":true}'
    ))
UNION
SELECT name FROM queues WHERE tenant = $1 AND name > $2 AND settings <> '{"removed":true}'
ORDER BY name LIMIT $3
