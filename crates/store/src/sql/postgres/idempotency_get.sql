SELECT w.number, i.task_id, i.fingerprint
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (tenant, key, number)
JOIN idempotency AS i ON i.tenant = w.tenant AND i.key = w.key
