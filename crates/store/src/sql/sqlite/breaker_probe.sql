UPDATE breakers SET probe = ?4 WHERE tenant = ?1 AND target = ?2 AND next_probe_at = ?3 AND half_open = 1
