SELECT name, queues, kinds, first_seen_at, last_seen_at FROM workers
WHERE tenant = $1 AND (CAST($2 AS text) IS NULL OR name > $2)
ORDER BY name
LIMIT $3
