-- Only if the row is still as it was read.
UPDATE breakers
SET next_probe_at = $8, half_open = $9, probe = $10, overtaken = $11, last_probe_at = $12, last_probe_error = $13
WHERE tenant = $1 AND target = $2 AND opened_at = $3 AND next_probe_at = $4 AND half_open = $5
    AND probe IS NOT DISTINCT FROM $6 AND overtaken = $7
