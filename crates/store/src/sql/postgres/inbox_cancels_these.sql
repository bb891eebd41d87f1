-- The cancellations of these tasks that no other transaction has locked and whose task is not in the
-- inbox any more.
SELECT c.seq, c.task_id FROM inbox_cancels AS c
WHERE c.task_id = ANY ($1) AND NOT EXISTS (SELECT FROM inbox AS i WHERE i.id = c.task_id)
ORDER BY c.seq
FOR UPDATE OF c SKIP LOCKED
