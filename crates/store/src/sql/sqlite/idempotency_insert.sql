INSERT INTO idempotency (tenant, key, task_id, fingerprint, created_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING
