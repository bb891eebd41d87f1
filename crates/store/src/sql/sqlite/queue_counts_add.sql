INSERT INTO queue_counts (tenant, queue, state, tasks) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (tenant, queue, state) DO UPDATE SET tasks = tasks + excluded.tasks
