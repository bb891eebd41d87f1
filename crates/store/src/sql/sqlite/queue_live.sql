-- The live tasks of a queue, by state.
SELECT state, tasks FROM queue_counts WHERE tenant = ?1 AND queue = ?2
