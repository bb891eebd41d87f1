INSERT INTO breaker_counts (tenant, target, slot_at, node, ok, failed)
SELECT value ->> 'tenant', value ->> 'target', value ->> 'slot_at', $2, value ->> 'ok', value ->> 'failed'
FROM json_each($1)
WHERE true
ON CONFLICT (tenant, target, slot_at, node) DO UPDATE SET ok = excluded.ok, failed = excluded.failed
