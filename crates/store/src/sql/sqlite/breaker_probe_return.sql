UPDATE breakers SET half_open = 0, probe = NULL, next_probe_at = min(next_probe_at, ?4)
WHERE tenant = ?1 AND target = ?2 AND probe = ?3
