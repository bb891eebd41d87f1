SELECT id, lane, state, ordering, awaited, due_at, concurrency FROM tasks WHERE seq = ?1
