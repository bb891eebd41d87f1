-- Lanes by number: when each was found empty, and whether it has counts, and tasks.
SELECT l.id, l.empty_since, c.rows > 0, c.tasks <> 0
FROM (SELECT id, empty_since FROM lanes WHERE id > $1 ORDER BY id LIMIT $2) AS l
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, coalesce(sum(tasks), 0) AS tasks FROM counts WHERE lane = l.id
) AS c
ORDER BY l.id
