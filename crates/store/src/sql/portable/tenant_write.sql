-- Only at the version that it was decided by.
UPDATE tenants SET weight = $3, limits = $4, version = $5, updated_at = $6 WHERE name = $1 AND version = $2
