SELECT id, tenant, queue, kind, priority, target FROM lanes WHERE id = ANY($1::bigint[])
