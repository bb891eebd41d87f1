DELETE FROM held_parents WHERE parent = ANY ($1) RETURNING parent
