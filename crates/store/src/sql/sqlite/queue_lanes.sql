-- The lanes of a queue that are at least so urgent and in which something waits, but for ?5.
SELECT l.id, l.priority FROM lanes AS l
WHERE l.tenant = ?1 AND l.queue = ?2 AND l.priority >= ?3 AND l.id <> ?5
    AND EXISTS (SELECT 1 FROM counts AS c WHERE c.lane = l.id AND c.state = 1 /* PENDING */ AND c.tasks > 0)
LIMIT ?4
