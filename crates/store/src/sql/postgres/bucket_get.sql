SELECT tokens, refilled_at FROM gates
WHERE tenant = $1 AND queue = $2 AND per_second IS NOT NULL AND tokens IS NOT NULL AND refilled_at IS NOT NULL
