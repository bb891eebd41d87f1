INSERT INTO orders (id, head, held_by) VALUES (?1, ?2, ?3)
ON CONFLICT (id) DO UPDATE SET head = excluded.head, held_by = excluded.held_by
