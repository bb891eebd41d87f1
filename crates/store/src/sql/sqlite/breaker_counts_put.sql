INSERT INTO breaker_counts (tenant, target, slot_at, node, ok, failed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (tenant, target, slot_at, node) DO UPDATE SET ok = excluded.ok, failed = excluded.failed
