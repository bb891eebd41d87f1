SELECT id, lane, state, ordering, awaited, due_at FROM tasks WHERE seq = ?1
