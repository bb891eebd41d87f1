-- Locks the idempotency keys of finished tasks, so that no other task takes one meanwhile. The keys
-- are sorted, which prevents deadlocks.
SELECT k.task_id
FROM history AS h JOIN lanes AS l ON l.id = h.lane
JOIN idempotency AS k ON k.tenant = l.tenant AND k.key = h.idempotency_key
WHERE h.id = ANY ($1)
ORDER BY k.tenant, k.key
FOR UPDATE OF k
