UPDATE partitions SET owner = NULL, expires_at = 0 WHERE owner IS NOT NULL
