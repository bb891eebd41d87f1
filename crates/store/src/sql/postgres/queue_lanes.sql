-- The lanes of a queue that are at least so urgent.
SELECT id, priority FROM lanes WHERE tenant = $1 AND queue = $2 AND priority >= $3 LIMIT $4
