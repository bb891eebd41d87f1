INSERT INTO breaker_counts (tenant, target, slot_at, node, ok, failed)
SELECT tenant, target, slot_at, $6::bigint, ok, failed
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
    AS counted (tenant, target, slot_at, ok, failed)
ON CONFLICT (tenant, target, slot_at, node) DO UPDATE SET ok = excluded.ok, failed = excluded.failed
