DELETE FROM held_parents WHERE parent = ?1
