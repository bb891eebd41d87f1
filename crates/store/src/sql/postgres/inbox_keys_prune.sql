-- Old keys of `punctual.enqueue`, unless their submission still waits in the inbox or the key is
-- still in `idempotency`, which all submissions share.
DELETE FROM inbox_keys WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM inbox_keys AS k
    WHERE k.created_at < $1
        AND NOT EXISTS (SELECT FROM inbox AS i WHERE i.id = k.task_id)
        AND NOT EXISTS (SELECT FROM idempotency AS i WHERE i.tenant = k.tenant AND i.key = k.key)
    ORDER BY k.created_at LIMIT $2
))
