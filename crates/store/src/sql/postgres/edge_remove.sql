-- Removes the edges that there are of these. Each is found by a seek of its own, whatever the
-- statistics say.
DELETE FROM dependencies
WHERE ctid = ANY (ARRAY(
    SELECT e.place
    FROM unnest($1::uuid[], $2::uuid[]) AS w (parent, child)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM dependencies WHERE parent = w.parent AND child = w.child LIMIT 1
    ) AS e
))
