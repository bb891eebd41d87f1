-- Frees the old keys in some blocks of the table, except those of live tasks. The walk goes by
-- blocks and needs no index by time.
DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM idempotency AS k
    WHERE k.ctid >= $1 AND k.ctid < $2 AND k.created_at < $3
        AND NOT EXISTS (SELECT FROM tasks AS t WHERE t.id = k.task_id)
    LIMIT $4
))
