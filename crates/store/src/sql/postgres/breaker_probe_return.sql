UPDATE breakers SET half_open = false, probe = NULL, next_probe_at = least(next_probe_at, $4)
WHERE tenant = $1 AND target = $2 AND probe = $3
