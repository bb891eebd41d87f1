UPDATE lanes SET empty_since = ?2 WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM counts WHERE lane = ?1)
