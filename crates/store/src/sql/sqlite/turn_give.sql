-- A task was not late while it waited for its turn.
UPDATE tasks SET has_turn = 1, due_at = max(due_at, ?2) WHERE seq = ?1 RETURNING lane, due_at
