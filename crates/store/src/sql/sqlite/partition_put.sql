UPDATE partitions SET owner = ?2, term = ?3, expires_at = ?4 WHERE number = ?1
