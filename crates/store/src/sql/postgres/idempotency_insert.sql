-- Waits for whoever is about to use one of the keys. They come sorted, so that nobody waits in a circle.
INSERT INTO idempotency (tenant, key, task_id, fingerprint, created_at)
SELECT tenant, key, task_id, fingerprint, created_at
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bytea[], $5::bigint[])
    AS w (tenant, key, task_id, fingerprint, created_at)
ON CONFLICT DO NOTHING
RETURNING task_id
