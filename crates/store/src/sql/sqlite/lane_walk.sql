-- Lanes by number: when each was found empty, and whether it has counts, and tasks.
SELECT
    l.id, l.empty_since,
    EXISTS (SELECT 1 FROM counts AS c WHERE c.lane = l.id),
    EXISTS (SELECT 1 FROM counts AS c WHERE c.lane = l.id AND c.tasks <> 0)
FROM lanes AS l
WHERE l.id > ?1
ORDER BY l.id
LIMIT ?2
