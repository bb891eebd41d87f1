SELECT child FROM failed_children WHERE parent = ?1 ORDER BY child LIMIT ?2
