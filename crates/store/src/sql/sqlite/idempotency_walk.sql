-- Keys in their order, each with whether it can be removed: a live task keeps its key.
SELECT
    k.tenant, k.key,
    k.created_at < ?3
        AND NOT EXISTS (SELECT 1 FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq WHERE i.id = k.task_id)
FROM idempotency AS k
WHERE (k.tenant, k.key) > (?1, ?2)
ORDER BY k.tenant, k.key
LIMIT ?4
