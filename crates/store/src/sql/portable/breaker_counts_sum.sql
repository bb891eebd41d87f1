SELECT tenant, target, CAST(sum(ok) AS bigint), CAST(sum(failed) AS bigint) FROM breaker_counts AS counted
WHERE slot_at >= $1 AND NOT EXISTS (
    SELECT 1 FROM breakers WHERE breakers.tenant = counted.tenant AND breakers.target IN ('', counted.target)
)
GROUP BY tenant, target
ORDER BY tenant, target
