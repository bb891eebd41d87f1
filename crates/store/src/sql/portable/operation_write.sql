-- Only at the revision that it was decided by.
UPDATE operations SET revision = $3, ended_at = $4, body = $5 WHERE id = $1 AND revision = $2
