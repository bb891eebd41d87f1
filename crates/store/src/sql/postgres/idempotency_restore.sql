-- Gives keys back to the tasks that had them before tasks that were refused.
UPDATE idempotency AS k SET task_id = w.former_id, fingerprint = w.fingerprint, created_at = w.created_at
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::uuid[], $5::bytea[], $6::bigint[])
    AS w (tenant, key, task_id, former_id, fingerprint, created_at)
WHERE k.tenant = w.tenant AND k.key = w.key AND k.task_id = w.task_id
