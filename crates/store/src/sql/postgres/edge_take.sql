-- Takes away who waits for these, one parent after the other in the order given; what somebody else took meanwhile is told
-- too. Each is found by itself, whatever is believed of the table.
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
