SELECT head, held_by FROM orders WHERE id = ?1
