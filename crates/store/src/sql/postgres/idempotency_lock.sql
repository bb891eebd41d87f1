-- Locks keys that tasks may take from others. The keys are sorted, which prevents deadlocks.
SELECT w.number, i.task_id, i.fingerprint, i.created_at
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (tenant, key, number)
JOIN idempotency AS i ON i.tenant = w.tenant AND i.key = w.key
ORDER BY i.tenant, i.key
FOR UPDATE OF i
