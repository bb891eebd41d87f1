DELETE FROM orders WHERE id = ANY ($1)
