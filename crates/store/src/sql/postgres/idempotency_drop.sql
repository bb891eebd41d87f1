-- Frees the keys of tasks that were refused after they took them.
DELETE FROM idempotency AS k
USING unnest($1::text[], $2::text[], $3::uuid[]) AS w (tenant, key, id)
WHERE k.tenant = w.tenant AND k.key = w.key AND k.task_id = w.id
