SELECT task_id, fingerprint, created_at FROM idempotency WHERE tenant = ?1 AND key = ?2
