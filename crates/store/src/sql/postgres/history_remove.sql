-- A task that was re-driven meanwhile is no longer here, or finished at another instant.
DELETE FROM history AS h
USING unnest($1::uuid[], $2::bigint[]) AS w (id, completed_at)
WHERE h.id = w.id AND h.id = ANY ($1) AND h.completed_at = w.completed_at
