-- How many tasks the pull workers of tenant $1 hold, and when each was last seen, among the $3
-- leases that end last, after $2. The row without a name counts all other leases.
WITH held AS MATERIALIZED (
    SELECT lane, coalesce(holder, worker) AS name, greatest(held_since, lease_expires_at - lease_millis) AS seen_at
    FROM tasks
    WHERE state >= 2 /* QUEUED */ AND node IS NULL AND lease_expires_at > $2
    ORDER BY node DESC, lease_expires_at DESC
    LIMIT $3
)
SELECT CASE WHEN l.tenant = $1 AND l.target = '' THEN h.name END, count(*), max(h.seen_at)
FROM held AS h CROSS JOIN LATERAL (SELECT tenant, target FROM lanes WHERE id = h.lane) AS l
GROUP BY 1
