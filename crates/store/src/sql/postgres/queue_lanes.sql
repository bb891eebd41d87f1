-- The lanes of a queue that are at least so urgent and in which something waits, but for $5.
SELECT l.id, l.priority FROM lanes AS l
WHERE l.tenant = $1 AND l.queue = $2 AND l.priority >= $3 AND l.id <> $5
    AND (SELECT sum(c.tasks) FROM counts AS c WHERE c.lane = l.id AND c.state = 1 /* PENDING */) > 0
LIMIT $4
