-- Those that were set, but for those that were removed and have nothing in them.
SELECT name FROM queues
WHERE tenant = ?1 AND name > ?2 AND name NOT IN (
        SELECT q.name FROM queues AS q
        WHERE q.tenant = ?1 AND q.name > ?2 AND q.settings = '{"removed":true}'
            AND NOT EXISTS (
                SELECT 1 FROM lanes AS l JOIN counts AS c ON c.lane = l.id
                WHERE l.tenant = q.tenant AND l.queue = q.name AND c.tasks > 0
            )
    )
ORDER BY name LIMIT ?3
