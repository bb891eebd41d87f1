INSERT INTO breakers (tenant, target, opened_at, next_probe_at, ok, failed, reason, half_open, probe)
VALUES ($1, $2, $3, $4, $5, $6, $7, false, NULL)
ON CONFLICT (tenant, target) DO NOTHING
