UPDATE tasks AS t SET blockers = w.blockers
FROM unnest($1::uuid[], $2::integer[]) AS w (id, blockers)
WHERE t.id = w.id AND t.id = ANY ($1)
