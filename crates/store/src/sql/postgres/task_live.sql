SELECT id FROM tasks WHERE id = ANY ($1)
