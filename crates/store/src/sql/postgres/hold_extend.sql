UPDATE tasks AS t SET
    lease_expires_at = w.lease_expires_at,
    deadline_at = w.deadline_at,
    node = w.node,
    progress = coalesce(w.progress, t.progress),
    checkpoint = coalesce(w.checkpoint, t.checkpoint)
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])
    AS w (id, lease_expires_at, deadline_at, node, progress, checkpoint)
WHERE t.id = w.id AND t.id = ANY ($1)
