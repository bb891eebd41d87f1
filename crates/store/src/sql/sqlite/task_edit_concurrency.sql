-- The task had its turn if it was parked.
UPDATE tasks SET concurrency = ?2, has_turn = has_turn OR parked IS NOT NULL, parked = NULL WHERE seq = ?1
