UPDATE breakers SET next_probe_at = $4, half_open = false
WHERE tenant = $1 AND target = $2 AND next_probe_at = $3 AND probe IS NULL
