-- Takes the failed children of these parents: at most $2, and only the first of them if they have
-- more than $3 parents together. Returns all that were found, and which of them were taken.
WITH found AS MATERIALIZED (
    SELECT parent, child FROM failed_children WHERE parent = ANY ($1) ORDER BY parent, child LIMIT $2 FOR UPDATE
),
sized AS MATERIALIZED (
    SELECT f.parent, f.child, sum(coalesce(h.parents, 0)) OVER places AS parents, row_number() OVER places AS number
    FROM found AS f
    LEFT JOIN LATERAL (SELECT octet_length(depends_on) / 16 AS parents FROM history WHERE id = f.child LIMIT 1) AS h ON true
    WINDOW places AS (ORDER BY f.parent, f.child)
),
taken AS (
    DELETE FROM failed_children AS f
    USING sized AS s
    WHERE f.parent = s.parent AND f.child = s.child AND (s.parents <= $3 OR s.number = 1)
    RETURNING f.parent, f.child
)
SELECT s.child, t.child IS NOT NULL
FROM sized AS s LEFT JOIN taken AS t ON t.parent = s.parent AND t.child = s.child
ORDER BY s.number
