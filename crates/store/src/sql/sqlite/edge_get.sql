SELECT 1 FROM dependencies WHERE parent = ?1 AND child = ?2
