DELETE FROM settled_parents WHERE seq = ?1
