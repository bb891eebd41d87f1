UPDATE breakers
SET half_open = half_open AND probe IS NOT ?3, probe = nullif(probe, ?3), overtaken = ?5,
    next_probe_at = CASE WHEN probe = ?3 THEN min(next_probe_at, ?4) ELSE next_probe_at END
WHERE tenant = ?1 AND target = ?2
