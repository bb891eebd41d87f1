-- Who holds the tasks whose leases last beyond ?1 and which no node holds, of which tenant, and when they were last heard
-- of. Of webhooks that are answered later there is no worker.
SELECT
    l.tenant, iif(l.target = '', ifnull(t.holder, t.worker), NULL),
    max(t.held_since, t.lease_expires_at - t.lease_millis)
FROM tasks AS t INDEXED BY tasks_held CROSS JOIN lanes AS l ON l.id = t.lane
WHERE t.state >= 2 /* QUEUED */ AND t.node IS NULL AND t.lease_expires_at > ?1
ORDER BY t.lease_expires_at DESC
LIMIT ?2
