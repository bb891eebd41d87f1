DELETE FROM quarantine WHERE id = ANY (ARRAY(
    SELECT id FROM quarantine WHERE found_at < $1 ORDER BY id LIMIT $2
))
