-- The live tasks of the lanes of a queue, by state.
SELECT l.id, c.state, c.tasks FROM lanes l LEFT JOIN counts c ON c.lane = l.id WHERE l.tenant = ?1 AND l.queue = ?2
