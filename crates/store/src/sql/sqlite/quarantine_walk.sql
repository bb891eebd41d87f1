SELECT seq FROM quarantine WHERE seq > ?1 AND found_at < ?2 ORDER BY seq LIMIT ?3
