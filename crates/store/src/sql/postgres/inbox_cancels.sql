-- The oldest cancellations by SQL that no other transaction has locked and whose task is not in the
-- inbox any more: at most $1.
SELECT c.seq, c.task_id FROM inbox_cancels AS c
WHERE NOT EXISTS (SELECT FROM inbox AS i WHERE i.id = c.task_id)
ORDER BY c.seq LIMIT $1
FOR UPDATE OF c SKIP LOCKED
