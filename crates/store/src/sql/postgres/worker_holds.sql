-- The pull workers of tenant $1 that hold tasks, how many, and when each was last heard of; among $3 of the leases that
-- last beyond $2. The row without a name tells how many leases were looked at.
WITH held AS MATERIALIZED (
    SELECT lane, coalesce(holder, worker) AS name, greatest(held_since, lease_expires_at - lease_millis) AS seen_at
    FROM tasks
    WHERE state >= 2 /* QUEUED */ AND node IS NULL AND lease_expires_at > $2
    ORDER BY node DESC, lease_expires_at DESC
    LIMIT $3
)
SELECT NULL::text, count(*), 0::bigint FROM held
UNION ALL
SELECT h.name, count(*), max(h.seen_at)
FROM held AS h CROSS JOIN LATERAL (SELECT tenant, target FROM lanes WHERE id = h.lane) AS l
WHERE l.tenant = $1 AND l.target = '' AND h.name IS NOT NULL
GROUP BY h.name
