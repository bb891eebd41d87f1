SELECT 1 FROM queue_counts WHERE tenant = $1 AND queue = $2 LIMIT 1
