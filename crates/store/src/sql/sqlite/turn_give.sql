-- The wait for its turn does not make a task late.
UPDATE tasks SET has_turn = 1, due_at = max(due_at, ?2) WHERE seq = ?1 RETURNING lane, due_at
