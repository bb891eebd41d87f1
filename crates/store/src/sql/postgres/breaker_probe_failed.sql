UPDATE breakers SET half_open = false, probe = NULL WHERE tenant = $1 AND target = $2 AND probe = $3
