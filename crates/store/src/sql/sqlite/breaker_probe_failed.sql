UPDATE breakers SET half_open = ?3, probe = ?4, overtaken = ?5, last_probe_at = ?6, last_probe_error = ?7
WHERE tenant = ?1 AND target = ?2
