SELECT name FROM queues WHERE tenant = ?1 AND name > ?2 ORDER BY name LIMIT ?3
