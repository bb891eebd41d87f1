UPDATE tasks SET awaited = 1 WHERE seq = ?1 AND awaited IS NULL
