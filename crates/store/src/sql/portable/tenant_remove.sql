-- Live tasks would be without an owner, and schedules would make more of them.
DELETE FROM tenants
WHERE name = $1
    AND (SELECT COALESCE(SUM(tasks), 0) FROM queue_counts WHERE tenant = $1) = 0
    AND NOT EXISTS (SELECT 1 FROM schedules WHERE tenant = $1)
