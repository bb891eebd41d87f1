DELETE FROM schedules WHERE id = ?1 AND revision = ?2
