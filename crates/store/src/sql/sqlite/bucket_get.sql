SELECT tokens, refilled_at FROM buckets WHERE tenant = ?1 AND queue = ?2
