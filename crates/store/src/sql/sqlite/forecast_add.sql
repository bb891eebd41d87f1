INSERT INTO forecast (tenant, minute, tasks) VALUES (?1, ?2, ?3)
ON CONFLICT (tenant, minute) DO UPDATE SET tasks = tasks + excluded.tasks
