INSERT INTO lanes (key, tenant, queue, kind, priority, target)
SELECT key, tenant, queue, kind, priority, target
FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[])
    AS w (key, tenant, queue, kind, priority, target)
ON CONFLICT (key) DO NOTHING
