SELECT id, tenant, created_at, submission FROM inbox WHERE id = $1 FOR UPDATE SKIP LOCKED
