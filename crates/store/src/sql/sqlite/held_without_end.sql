-- No code of ours writes a hold without an end: such a row is damaged and would be held forever.
SELECT seq FROM tasks INDEXED BY tasks_held
WHERE state >= 2 /* QUEUED */ AND node IS ?1 AND lease_expires_at IS NULL
LIMIT ?2
