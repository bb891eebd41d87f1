UPDATE partitions SET owner = NULL, expires_at = ?2 WHERE owner = ?1
