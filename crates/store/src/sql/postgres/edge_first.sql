-- The first of these dependencies that a task still waits for, in the order given. The lateral join
-- finds each by the index, whatever the statistics say.
SELECT w.parent
FROM unnest($2::text[]::uuid[]) WITH ORDINALITY AS w (parent, number)
CROSS JOIN LATERAL (SELECT 1 FROM dependencies WHERE parent = w.parent AND child = $1 LIMIT 1) AS e
ORDER BY w.number
LIMIT $3
