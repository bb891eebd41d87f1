-- Takes the failed children of these parents, at most $2.
DELETE FROM failed_children AS f
USING (
    SELECT parent, child FROM failed_children WHERE parent = ANY ($1) ORDER BY parent, child LIMIT $2 FOR UPDATE
) AS taken
WHERE f.parent = taken.parent AND f.child = taken.child
RETURNING f.child
