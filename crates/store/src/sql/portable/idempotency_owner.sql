SELECT task_id, fingerprint FROM idempotency WHERE tenant = $1 AND key = $2
