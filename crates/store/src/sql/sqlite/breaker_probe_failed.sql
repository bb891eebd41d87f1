UPDATE breakers SET half_open = 0, probe = NULL WHERE tenant = ?1 AND target = ?2 AND probe = ?3
