SELECT 1 FROM partitions WHERE number = ?1 AND owner = ?2 AND term = ?3
