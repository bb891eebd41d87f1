-- Keeps a due task out of the way of claims until a place of its key is free.
UPDATE tasks SET has_turn = 0, parked = 1 WHERE seq = ?1
