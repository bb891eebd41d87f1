SELECT lane FROM quarantine WHERE seq > ?1 ORDER BY seq LIMIT ?2
