UPDATE breakers SET next_probe_at = ?4, half_open = 1, probe = NULL, overtaken = ?5
WHERE tenant = ?1 AND target = ?2 AND next_probe_at <= ?3
