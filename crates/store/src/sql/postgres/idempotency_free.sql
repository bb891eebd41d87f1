-- Keys of some blocks of the table whose life is over: there is no index by time, and none is needed to walk.
DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM idempotency AS k
    WHERE k.ctid >= $1 AND k.ctid < $2 AND k.created_at < $3
        AND NOT EXISTS (SELECT FROM tasks AS t WHERE t.id = k.task_id)
    LIMIT $4
))
