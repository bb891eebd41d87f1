UPDATE breakers
SET next_probe_at = ?3, half_open = ?4, probe = ?5, overtaken = ?6, last_probe_at = ?7, last_probe_error = ?8
WHERE tenant = ?1 AND target = ?2
