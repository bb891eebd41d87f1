-- Locks the schedules that are still at the revision their advances were decided by, in a fixed
-- order.
SELECT s.id FROM unnest($1::uuid[], $2::bigint[]) AS w (id, revision)
JOIN schedules AS s ON s.id = w.id AND s.revision = w.revision
ORDER BY s.id FOR UPDATE OF s
