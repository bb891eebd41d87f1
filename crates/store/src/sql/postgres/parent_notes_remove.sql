DELETE FROM settled_parents WHERE seq = ANY ($1)
