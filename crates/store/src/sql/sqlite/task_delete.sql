DELETE FROM tasks WHERE seq = ?1
