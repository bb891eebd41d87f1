SELECT id, lane, state, ordering, awaited FROM tasks WHERE seq = ?1
