-- Lanes of a tenant with queues from $2 to $3, of one type ($4) or of any, with at least the
-- priority $5.
SELECT id FROM lanes
WHERE tenant = $1 AND queue >= $2 AND queue <= $3 AND kind = coalesce($4, kind) AND CAST(priority AS bigint) >= $5
LIMIT $6
