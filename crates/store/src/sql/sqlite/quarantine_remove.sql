DELETE FROM quarantine WHERE seq = ?1 AND found_at < ?2 RETURNING id
