-- The lanes of a queue with waiting tasks and at least this priority, apart from $5.
SELECT l.id, CAST(l.priority AS bigint) FROM lanes AS l
WHERE l.tenant = $1 AND l.queue = $2 AND l.priority >= $3 AND l.id <> $5
    AND (SELECT sum(c.tasks) FROM counts AS c WHERE c.lane = l.id AND c.state = 1 /* PENDING */) > 0
LIMIT $4
