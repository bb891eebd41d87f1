-- Those with tasks at any time, but for those that were removed and have nothing in them.
SELECT DISTINCT queue FROM lanes
WHERE tenant = ?1 AND queue > ?2 AND queue NOT IN (
        SELECT q.name FROM queues AS q
        WHERE q.tenant = ?1 AND q.name > ?2 AND q.settings = '{"removed":true}'
            AND NOT EXISTS (
                SELECT 1 FROM lanes AS l JOIN counts AS c ON c.lane = l.id
                WHERE l.tenant = q.tenant AND l.queue = q.name AND c.tasks > 0
            )
    )
ORDER BY queue LIMIT ?3
