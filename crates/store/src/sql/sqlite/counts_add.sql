INSERT INTO counts (lane, state, tasks) VALUES (?1, ?2, ?3)
ON CONFLICT (lane, state) DO UPDATE SET tasks = tasks + excluded.tasks
