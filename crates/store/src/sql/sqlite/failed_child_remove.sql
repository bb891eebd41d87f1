DELETE FROM failed_children WHERE parent = ?1 AND child = ?2
