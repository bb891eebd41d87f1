INSERT OR REPLACE INTO quarantine SELECT *, ?2, ?3 FROM tasks WHERE seq = ?1
