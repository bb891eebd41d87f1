DELETE FROM buckets WHERE tenant = ?1 AND queue = ?2
