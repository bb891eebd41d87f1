SELECT tenant, target, sum(ok), sum(failed) FROM breaker_counts AS counted
WHERE slot_at >= ?1 AND NOT EXISTS (
    SELECT 1 FROM breakers WHERE breakers.tenant = counted.tenant AND breakers.target IN ('', counted.target)
)
GROUP BY tenant, target
