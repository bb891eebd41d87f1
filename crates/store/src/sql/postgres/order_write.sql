UPDATE orders AS o SET head = w.head, held_by = w.held_by
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS w (id, head, held_by)
WHERE o.id = w.id AND o.id = ANY ($1)
