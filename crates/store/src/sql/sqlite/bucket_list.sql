SELECT tenant, queue, tokens, refilled_at FROM buckets
