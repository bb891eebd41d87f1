SELECT DISTINCT queue FROM lanes WHERE tenant = ?1 AND queue > ?2 ORDER BY queue LIMIT ?3
