-- The place of a task among those of its ordering key, the task that has the turn, and the dead
-- letter that holds the key.
SELECT t.state, t.ordering, t.execute_at, t.seq, t.has_turn OR t.parked IS NOT NULL,
    (SELECT id FROM tasks WHERE seq = o.head UNION ALL SELECT id FROM history WHERE seq = o.head),
    (SELECT id FROM tasks WHERE seq = o.held_by UNION ALL SELECT id FROM history WHERE seq = o.held_by)
FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id LEFT JOIN orders AS o ON o.id = t.ordering
WHERE i.id = ?1
