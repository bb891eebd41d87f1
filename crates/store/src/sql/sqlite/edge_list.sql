SELECT child FROM dependencies WHERE parent = ?1 ORDER BY child LIMIT ?2
