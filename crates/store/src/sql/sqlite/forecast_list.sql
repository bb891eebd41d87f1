SELECT minute, tasks FROM forecast WHERE tenant = ?1 AND minute >= ?2 AND minute < ?3 AND tasks > 0 ORDER BY minute
