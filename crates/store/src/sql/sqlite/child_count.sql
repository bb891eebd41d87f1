UPDATE tasks SET blockers = ?2 WHERE seq = ?1
