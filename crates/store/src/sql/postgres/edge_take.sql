-- Removes the edges to children of these parents, one parent after the other in the order given.
-- Edges that another transaction removed meanwhile are returned too. Each is found by a seek of its
-- own, whatever the statistics say.
WITH picked AS MATERIALIZED (
    SELECT w.number, w.parent, e.child, e.place
    FROM unnest($1::uuid[]) WITH ORDINALITY AS w (parent, number)
    CROSS JOIN LATERAL (
        SELECT child, ctid AS place FROM dependencies WHERE parent = w.parent ORDER BY parent, child LIMIT $2
    ) AS e
    LIMIT $2
),
gone AS (
    DELETE FROM dependencies WHERE ctid = ANY (ARRAY(SELECT place FROM picked)) RETURNING parent, child
)
SELECT p.number, p.child, g.child IS NOT NULL
FROM picked AS p LEFT JOIN gone AS g ON g.parent = p.parent AND g.child = p.child
ORDER BY p.number, p.child
