INSERT INTO lanes (tenant, queue, kind, priority, target) VALUES (?1, ?2, ?3, ?4, ?5)
