DELETE FROM breaker_counts WHERE tenant = ?1 AND (?2 = '' OR target = ?2)
