DELETE FROM history WHERE seq = ?1 AND completed_at < ?2 RETURNING id
