-- Only at the revision that it was decided by, and by the last holder of the leader's lease.
UPDATE operations SET revision = $3, ended_at = $4, body = $5
WHERE id = $1 AND revision = $2
    AND EXISTS (SELECT 1 FROM leases WHERE name = $6 AND holder = $7 AND term = $8)
