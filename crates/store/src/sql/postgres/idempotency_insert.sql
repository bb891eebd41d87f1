-- Waits for transactions that take one of the keys. The keys are sorted, which prevents deadlocks.
INSERT INTO idempotency (tenant, key, task_id, fingerprint, created_at)
SELECT tenant, key, task_id, fingerprint, created_at
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bytea[], $5::bigint[])
    AS w (tenant, key, task_id, fingerprint, created_at)
ON CONFLICT DO NOTHING
RETURNING task_id
