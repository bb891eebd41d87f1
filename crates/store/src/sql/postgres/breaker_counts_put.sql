INSERT INTO breaker_counts (tenant, target, slot_at, node, ok, failed)
SELECT tenant, target, slot_at, $2, ok, failed
FROM json_to_recordset(CAST(CAST($1 AS text) AS json))
    AS counted (tenant text, target text, slot_at bigint, ok bigint, failed bigint)
ON CONFLICT (tenant, target, slot_at, node) DO UPDATE SET ok = excluded.ok, failed = excluded.failed
