-- As `dead_letters.sql`, for parents that did not complete. They stay as they are until this
-- transaction is committed: whoever re-drives or revives one finds what it did to its children.
SELECT h.id, h.state, q.settings
FROM history AS h
JOIN lanes AS l ON l.id = h.lane
LEFT JOIN queues AS q ON q.tenant = l.tenant AND q.name = l.queue
WHERE h.id = ANY ($1)
FOR SHARE OF h
