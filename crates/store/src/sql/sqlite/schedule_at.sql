SELECT 1 FROM schedules WHERE id = ?1 AND revision = ?2
