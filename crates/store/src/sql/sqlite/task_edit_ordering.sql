-- A task with a key waits for its turn.
UPDATE tasks SET ordering = ?2, has_turn = ?2 IS NULL, parked = NULL WHERE seq = ?1
