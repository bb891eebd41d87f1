-- Removes the counts of a lane without tasks: when it has some again, it was used.
DELETE FROM counts
WHERE lane = ?1 AND NOT EXISTS (SELECT 1 FROM counts AS c WHERE c.lane = ?1 AND c.tasks <> 0)
