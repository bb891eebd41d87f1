SELECT id FROM lanes WHERE tenant = ?1 AND queue = ?2 AND kind = ?3 AND priority = ?4 AND target = ?5
