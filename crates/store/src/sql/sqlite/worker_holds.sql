-- The ?3 leases that end last, after ?2, each as one task: the pull worker of tenant ?1 that holds
-- it, and when that worker was last seen. A lease of another tenant or of a webhook has no name.
SELECT iif(l.tenant = ?1 AND l.target = '', ifnull(t.holder, t.worker), NULL), 1,
    max(t.held_since, t.lease_expires_at - t.lease_millis)
FROM tasks AS t INDEXED BY tasks_held CROSS JOIN lanes AS l ON l.id = t.lane
WHERE t.state >= 2 /* QUEUED */ AND t.node IS NULL AND t.lease_expires_at > ?2
ORDER BY t.lease_expires_at DESC
LIMIT ?3
