DELETE FROM breakers WHERE tenant = ?1 AND target = ?2 AND (?3 IS NULL OR probe = ?3)
