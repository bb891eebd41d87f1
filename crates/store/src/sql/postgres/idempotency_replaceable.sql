-- Which of these keys belong to cancelled or failed tasks.
SELECT w.number
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (tenant, key, number)
JOIN idempotency AS i ON i.tenant = w.tenant AND i.key = w.key
WHERE EXISTS (SELECT FROM history AS h WHERE h.id = i.task_id AND h.state IN (5 /* CANCELLED */, 6 /* FAILED */))
