UPDATE breakers SET half_open = 0, probe = NULL, last_probe_at = ?4, last_probe_error = ?5
WHERE tenant = ?1 AND target = ?2 AND probe = ?3
