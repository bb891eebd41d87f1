SELECT id, completed_at FROM history_rest WHERE id > $1 ORDER BY id LIMIT $2
