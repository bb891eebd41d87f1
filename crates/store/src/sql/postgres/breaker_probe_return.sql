UPDATE breakers
SET half_open = half_open AND probe IS DISTINCT FROM $3, probe = nullif(probe, $3), overtaken = array_remove(overtaken, $3),
    next_probe_at = CASE WHEN probe = $3 THEN least(next_probe_at, $4) ELSE next_probe_at END
WHERE tenant = $1 AND target = $2 AND (probe = $3 OR $3 = ANY (overtaken))
