-- Gives the keys of cancelled and failed tasks to others. The keys are locked.
UPDATE idempotency AS k SET task_id = w.task_id, fingerprint = w.fingerprint, created_at = w.created_at
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bytea[], $5::bigint[])
    AS w (tenant, key, task_id, fingerprint, created_at)
WHERE k.tenant = w.tenant AND k.key = w.key
    AND EXISTS (SELECT FROM history AS h WHERE h.id = k.task_id AND h.state IN (5 /* CANCELLED */, 6 /* FAILED */))
RETURNING k.task_id
