-- At most $1 tasks that are cancelled and still wait in the inbox.
SELECT DISTINCT i.id FROM inbox_cancels AS c JOIN inbox AS i ON i.id = c.task_id LIMIT $1
