SELECT
    tenant, target, opened_at, next_probe_at, ok, failed, reason, half_open, probe, overtaken, last_probe_at,
    last_probe_error
FROM breakers
WHERE (tenant, target) > ($1, $2) ORDER BY tenant, target LIMIT $3
