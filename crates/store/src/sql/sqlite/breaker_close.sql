DELETE FROM breakers WHERE tenant = ?1 AND target = ?2
