-- Keeps due tasks, which are locked, out of the way of claims until a place of their key is free.
UPDATE tasks SET has_turn = false, parked = true WHERE ctid = ANY ($1)
